# The driver's image: docker build --build-arg REVISION=$(git rev-parse HEAD) -t gpuslice:0.1.0 .
#
# hack/image makes one of the same content where there is no container engine.
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
# The packages first: they change seldom, and their layer is kept.
COPY requirements.lock requirements-dev.lock ./
RUN python -m venv --without-pip /opt/gpuslice \
    && python -m pip --python /opt/gpuslice/bin/python install --no-compile --no-deps \
       --only-binary :all: --require-hashes -r requirements.lock
# What builds the wheel, at the locked versions too.
RUN for name in hatchling packaging pathspec pluggy trove-classifiers; do \
      sed -n "/^$name==/,/[^\\\\]\$/p" requirements-dev.lock; \
    done >build.lock \
    && python -m pip install --no-deps --only-binary :all: --require-hashes -r build.lock
COPY pyproject.toml README.md LICENSE ./
COPY api/dra_api api/dra_api
COPY dra_driver dra_driver
# Compiled now, as nothing can be written when it runs. Nothing may depend on times of files.
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && python -m pip --python /opt/gpuslice/bin/python install --no-compile --no-deps dist/*.whl \
    && /opt/gpuslice/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/gpuslice/lib
# gpuslice-init and others: static programs, hence of any stage.
COPY hack hack
RUN hack/native /opt/gpuslice/bin

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="gpuslice" \
      org.opencontainers.image.description="Fine-grained GPU slices for Kubernetes on stock Dynamic Resource Allocation" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
COPY --from=build /opt/gpuslice /opt/gpuslice
ENV PATH=/opt/gpuslice/bin:$PATH PYTHONDONTWRITEBYTECODE=1 NVIDIA_VISIBLE_DEVICES=void
# Root: the folders of the kubelet's plugins and of CDI are root's, and so are the nodes of GPUs that
# NVML may have to make. What a container may do beyond that, manifests/base/daemonset.yaml says.
USER 0:0
ENTRYPOINT ["gpuslice"]
CMD ["--help"]
