# Two images from one file:
#   docker build --target cpu --tag uepnet:cpu .
#   docker build --target gpu --tag uepnet:gpu .    CUDA comes from wheels; the host needs only NVIDIA's driver and runtime
# To pin the base by digest, or to take it from a mirror: --build-arg BASE=...
ARG BASE=python:3.11-slim

FROM ${BASE} AS wheel
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY uepnet uepnet
COPY model model
COPY training training
COPY service service
COPY client client
COPY video video
COPY bench bench
COPY deploy/*.py deploy/
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# What we depend on, without ourselves: a layer that only changes with pyproject.toml or constraints.txt, so that
# a new release of the code is a pull of megabytes. The environment needs no pip of its own. pip downloads wheels, which
# runs no code of theirs, and installs those whose hashes are recorded.
FROM ${BASE} AS dependencies
WORKDIR /source
COPY constraints.txt pyproject.toml deploy/requirements.py deploy/locked.py deploy/hashes.txt ./
RUN python -m venv --without-pip /opt/uepnet

FROM dependencies AS dependencies-cpu
RUN python requirements.py serve postgres cpu openvino > requirements.txt \
 && pip download --no-cache-dir --only-binary :all: --dest wheels --constraint constraints.txt --requirement requirements.txt \
 && python locked.py hashes.txt wheels > locked.txt \
 && pip --python /opt/uepnet/bin/python install --no-cache-dir --no-deps --no-index --find-links wheels --require-hashes --requirement locked.txt \
 && rm -r wheels

FROM dependencies AS dependencies-gpu
RUN python requirements.py serve postgres gpu > requirements.txt \
 && pip download --no-cache-dir --only-binary :all: --dest wheels --constraint constraints.txt --requirement requirements.txt \
 && python locked.py hashes.txt wheels > locked.txt \
 && pip --python /opt/uepnet/bin/python install --no-cache-dir --no-deps --no-index --find-links wheels --require-hashes --requirement locked.txt \
 && rm -r wheels

FROM ${BASE} AS base
ARG REVISION=unknown
LABEL org.opencontainers.image.title="uepnet" \
      org.opencontainers.image.description="Crowd counting, served: UEPNet with zones, calibrated ranges, video and metrics" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/uepnet/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    UEPNET_HOST=0.0.0.0 \
    UEPNET_PORT=8000 \
    UEPNET_MODELS_DIR=/models \
    UEPNET_HISTORY=sqlite:////state/history.sqlite \
    UEPNET_LOG_FORMAT=json
RUN mkdir /models /state && chown 10001:10001 /state
VOLUME /models
# The history of the cameras' counts.
VOLUME /state
EXPOSE 8000
STOPSIGNAL SIGTERM
# Liveness: the one path that needs no key.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['UEPNET_PORT'] + '/v2/health/live', timeout=4)"]
ENTRYPOINT ["uepnet"]
CMD ["serve"]

FROM base AS gpu
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    UEPNET_DEVICE=cuda
COPY --from=dependencies-gpu /opt/uepnet /opt/uepnet
RUN --mount=from=wheel,source=/wheels,target=/wheels \
    pip --python /opt/uepnet/bin/python install --no-cache-dir --no-deps /wheels/*.whl
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001

# The last stage is what a build without --target makes.
FROM base AS cpu
COPY --from=dependencies-cpu /opt/uepnet /opt/uepnet
RUN --mount=from=wheel,source=/wheels,target=/wheels \
    pip --python /opt/uepnet/bin/python install --no-cache-dir --no-deps /wheels/*.whl
USER 10001:10001
