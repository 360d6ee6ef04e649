"""All expected failures as one tree. A message is one sentence for the person who can correct the cause.

UepnetError
├── InputError            the input is wrong
│   ├── ImageError        not a readable image
│   │   └── ImageTooLarge
│   ├── ZoneError
│   └── DataError         annotations, data sets, local counts
├── ModelError            the model directory is missing, damaged or unsuitable
│   ├── ArtifactError
│   └── DeviceError       the requested device cannot run the model
├── OutputError           a result cannot be written: disk full, no permission
└── InferenceError        an accepted image was not counted
    ├── Unreachable       no server answers at the address
    ├── Overloaded        no capacity: try again later
    ├── DeadlineExceeded
    └── Cancelled         the client no longer waits for the answer
"""


class UepnetError(Exception):
    """Base of all expected failures; the message can be shown to users as it is."""


class InputError(UepnetError):
    pass


class ImageError(InputError):
    pass


class ImageTooLarge(ImageError):
    pass


class ZoneError(InputError):
    pass


class DataError(InputError):
    pass


class ModelError(UepnetError):
    pass


class ArtifactError(ModelError):
    pass


class DeviceError(ModelError):
    pass


class OutputError(UepnetError):
    pass


class InferenceError(UepnetError):
    pass


class Unreachable(InferenceError):
    pass


class Overloaded(InferenceError):
    pass


class DeadlineExceeded(InferenceError):
    pass


class Cancelled(InferenceError):
    pass
