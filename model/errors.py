"""Everything that can go wrong, as one tree. Texts are one sentence, written for the person who caused it.

UepnetError
├── InputError            what was handed in is wrong
│   ├── ImageError        not an image that can be read
│   │   └── ImageTooLarge
│   ├── ZoneError
│   └── DataError         annotations, data sets, local counts
├── ModelError            the model directory is missing, broken or does not fit
│   ├── ArtifactError
│   └── DeviceError       the device asked for cannot run the model
├── OutputError           a result cannot be written: disk full, no permission
└── InferenceError        an admitted image was not counted
    ├── Unreachable       no server answers at the address
    ├── Overloaded        no room: try again later
    ├── DeadlineExceeded
    └── Cancelled         nobody waits for the answer any more
"""


class UepnetError(Exception):
    """Base of all expected failures; its text is fit to be shown."""


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
