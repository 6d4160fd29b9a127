# syntax=docker/dockerfile:1
#
# The image that "make image" packs, for those who have an engine:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=v1 -t NAME:TAG .

# Go compiles for the target on the machine that builds: nothing is emulated.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETARCH
ARG VERSION=unknown
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=$VERSION" -o /rootfs/usr/bin/podnas ./cmd/podnas
RUN install -D -m 0644 LICENSE /rootfs/usr/share/doc/podnas/LICENSE \
    && mkdir /rootfs/etc \
    && printf 'root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n' >/rootfs/etc/passwd \
    && printf 'root:x:0:\nnogroup:x:65534:\n' >/rootfs/etc/group

FROM scratch
COPY --from=build /rootfs/ /
ENV PATH=/usr/bin
# podnas acts on files of many owners; a pod takes away what root needs not.
USER 0:0
EXPOSE 2049 8080
ENTRYPOINT ["/usr/bin/podnas"]
