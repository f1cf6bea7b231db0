# giveway in one image; the command decides what it is (serve, reconcile, certs, ...). .dockerignore leaves out what is for
# trying and testing only. To pin the base: --build-arg BASE=python:3.11-slim@sha256:...
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
COPY requirements.image.lock ./
# Wheels only, each checked against the lock's hashes: nothing is compiled, and no package runs code of its own here.
RUN python -m venv --without-pip /opt/giveway \
 && pip --python /opt/giveway/bin/python install --no-cache-dir --no-compile --only-binary :all: --require-hashes \
    -r requirements.image.lock
COPY pyproject.toml README.md LICENSE ./
COPY webhook webhook
COPY certs certs
# Byte code is written once, here, and never compared with the sources: the root is read-only where it runs.
RUN pip --python /opt/giveway/bin/python install --no-cache-dir --no-compile --no-index --no-deps --no-build-isolation . \
 && pip --python /opt/giveway/bin/python uninstall --yes setuptools \
 && /opt/giveway/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/giveway/lib

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="giveway" \
      org.opencontainers.image.description="Priority and preemption policy for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/giveway /opt/giveway
COPY policies /etc/giveway/policies
ENV PATH=/opt/giveway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 9443 8081 8082
ENTRYPOINT ["giveway"]
CMD ["--help"]
