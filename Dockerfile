# One image for both daemons:
#
#   docker build -t blizzard-penguin .
#   docker run blizzard-penguin blizzard run /etc/blizzard/config.yaml
#   docker run blizzard-penguin penguin run /etc/blizzard/config.yaml
#
# BASE is a Debian image with Python 3.11, 3.12 or 3.13, and JRE the package of its
# release with Java 17 or newer (trixie: openjdk-21-jre-headless).
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /src
# The locked packages change less often than the code and make a layer of their own.
# The build backend comes first: pyspark is built with it, not with one off the lock.
COPY requirements-build.lock requirements.lock ./
RUN pip install --require-hashes -r requirements-build.lock \
    && pip install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY blizzard_py blizzard_py
COPY penguin_py penguin_py
RUN pip install --no-deps --no-build-isolation . \
    && pip uninstall --yes setuptools pip

FROM ${BASE}
ARG JRE=openjdk-17-jre-headless
# Slim images lack man1, and Java's package fails without it. tini is process 1: it
# hands SIGTERM on and reaps what Spark leaves behind.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends ${JRE} tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --user-group --create-home blizzard
COPY --from=build /opt/venv /opt/venv
COPY LICENSE NOTICE /usr/share/doc/blizzard-penguin/
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /home/blizzard
ENTRYPOINT ["tini", "--"]
CMD ["blizzard", "--help"]
