# One image for both daemons, and for Spark's executors:
#
#   docker build -t blizzard-penguin .
#   docker run --read-only --tmpfs /tmp -v $PWD/config.yaml:/etc/blizzard/config.yaml:ro \
#       blizzard-penguin blizzard run /etc/blizzard/config.yaml
#
# BASE is a Debian release in a dated tag. Nail it to what you have tested:
#   --build-arg BASE=debian:12.15-slim@sha256:…
# JRE is the package of that release with Java 17 or newer (Debian 13: openjdk-21-jre-headless).
#
# Without a network: BASE with python3, tini, ca-certificates and the JRE in it, BUILD_BASE
# with python3 and python3-venv, and what requirements-image.lock names in wheels/:
#   pip download --no-deps --no-build-isolation --require-hashes -d wheels \
#       -r requirements-build.lock -r requirements-image.lock
#
# A package index that needs a configuration gives it as a secret, which no layer keeps:
#   --secret id=pip,src=$HOME/.config/pip/pip.conf
ARG BASE=debian:12.15-slim
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
COPY deploy/image/install-packages /usr/local/sbin/
RUN install-packages python3 python3-venv ca-certificates
ENV PIP_CONFIG_FILE=/run/secrets/pip PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /src
# The locked packages change less often than the code and make a layer of their own.
# The build backend comes first: pyspark is built with it, not with one off the lock.
# `wheel[s]` is a pattern so that the folder may be missing.
COPY requirements-build.lock requirements-image.lock wheel[s] wheels/
RUN --mount=type=secret,id=pip \
    if [ -n "$(find wheels -name 'pyspark-*')" ]; then set -- --no-index --find-links wheels; fi \
    && pip install --require-hashes "$@" -r wheels/requirements-build.lock \
    && pip install --require-hashes --no-build-isolation --use-pep517 "$@" \
        -r wheels/requirements-image.lock
COPY pyproject.toml setup.py README.md LICENSE NOTICE ./
COPY blizzard_core blizzard_core
COPY blizzard_py blizzard_py
COPY penguin_py penguin_py
# Compiled here, because nothing can be written where the image runs. Spark's examples
# and the tests that some packages bring are of no use there.
RUN pip install --no-deps --no-build-isolation . \
    && pip uninstall --yes setuptools pip \
    && rm -rf /opt/venv/lib/python3*/site-packages/pyspark/examples \
        /opt/venv/lib/python3*/site-packages/pyarrow/tests \
        /opt/venv/lib/python3*/site-packages/pyarrow/include \
    && python -m compileall -q /opt/venv

FROM ${BASE}
ARG JRE=openjdk-17-jre-headless
COPY deploy/image/install-packages /usr/local/sbin/
# tini is process 1: it hands SIGTERM on and reaps what Spark leaves behind.
RUN install-packages python3 ${JRE} tini ca-certificates \
    && rm /usr/local/sbin/install-packages \
    && useradd --system --uid 10001 --user-group --home-dir /scratch --no-create-home blizzard \
    && install --directory /etc/blizzard \
    && install --directory --owner=blizzard --group=blizzard /scratch
COPY --from=build /opt/venv /opt/venv
# A JVM maps this archive of Spark's classes: a start takes half the CPU time.
RUN /opt/venv/bin/python -m blizzard_py.app.class_archive
COPY LICENSE NOTICE /usr/share/doc/blizzard-penguin/
# /scratch and /tmp are the only places that anything is written to.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYSPARK_PYTHON=/opt/venv/bin/python \
    SPARK_LOCAL_DIRS=/scratch
USER 10001:10001
WORKDIR /scratch
VOLUME /scratch
# Healthy as well while `metrics` is not configured; Kubernetes asks /health itself.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 \
    CMD ["python", "-m", "blizzard_core.observability.probe", "/etc/blizzard/config.yaml"]
ENTRYPOINT ["tini", "--"]
CMD ["blizzard", "--help"]
