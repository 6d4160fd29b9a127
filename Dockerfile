# syntax=docker/dockerfile:1
#
# The image that "make image" packs, for those who have an engine:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=v1 -t NAME:TAG .
#
# It has no list of what it is made of, as make image's has: add --sbom=true for one.
#
# The variant of deploy/overlays/disk-image, which makes file systems:
#
#   docker buildx build --target xfs --build-arg VERSION=v1 -t ghcr.io/podnas/podnas-xfs:TAG .

# Go compiles for the target on the machine that builds: nothing is emulated.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETARCH
ARG VERSION=unknown
ARG COMMIT=
ARG DATE=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT -X main.date=$DATE" -o /rootfs/usr/bin/podnas ./cmd/podnas
RUN install -D -m 0644 LICENSE /rootfs/usr/share/doc/podnas/LICENSE \
    && mkdir /rootfs/etc \
    && printf 'root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n' >/rootfs/etc/passwd \
    && printf 'root:x:0:\nnogroup:x:65534:\n' >/rootfs/etc/group

# mkfs.xfs to make disk images, xfs_repair for a person to mend one. Debian 12's, of
# version 6.1: what it makes, kernels from 5.10 on can mount.
FROM debian:12-slim AS xfs
RUN apt-get update \
    && apt-get install --yes --no-install-recommends xfsprogs \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /rootfs/usr/ /usr/
ENV PATH=/usr/bin:/usr/sbin
USER 0:0
EXPOSE 2049 8080
ENTRYPOINT ["/usr/bin/podnas"]

# The last target is the one that is built when none is named.
FROM scratch
COPY --from=build /rootfs/ /
ENV PATH=/usr/bin
# podnas acts on files of many owners; a pod takes away what root needs not.
USER 0:0
EXPOSE 2049 8080
ENTRYPOINT ["/usr/bin/podnas"]
