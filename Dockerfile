# giveway in one image; the command decides what it is (serve, reconcile, certs, ...).
# To pin the base: --build-arg BASE=python:3.11-slim@sha256:...
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
WORKDIR /src
COPY requirements.lock .
# Every wheel is checked against the lock's hashes; below only those that are needed to run are installed.
RUN pip wheel --no-cache-dir --require-hashes --wheel-dir /wheels -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY webhook webhook
COPY certs certs
RUN python -m venv --without-pip /opt/giveway \
 && pip --python /opt/giveway/bin/python install --no-cache-dir --no-index --find-links /wheels --no-compile setuptools wheel \
 && pip --python /opt/giveway/bin/python install --no-cache-dir --no-index --find-links /wheels --no-build-isolation . \
 && pip --python /opt/giveway/bin/python uninstall --yes setuptools wheel

FROM ${BASE}
COPY --from=build /opt/giveway /opt/giveway
COPY policies /etc/giveway/policies
ENV PATH=/opt/giveway/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 9443 8081 8082
ENTRYPOINT ["giveway"]
CMD ["--help"]
