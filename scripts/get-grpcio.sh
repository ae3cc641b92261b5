#!/usr/bin/env bash
# Prints a folder of Python packages for the tests: a gRPC client, and the messages of Envoy's protocol as others generate
# them. It is for PYTHONPATH, made once in the target directory: `bash scripts/get-grpcio.sh`. With Python 3.10 to 3.14.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/from-pypi.sh

if [ -z "${GRPCIO:-}" ]; then
    only_linux "gRPC for Python" GRPCIO
    GRPCIO=$(python_packages grpcio <<'PACKAGES'
# One for each version of Python.
grpcio==1.85.1 \
    --hash=sha256:1f04e51dc65c82af420f6cd177ea76132a78c14dc7adc3044f549b419bc70487 \
    --hash=sha256:83aced2a1c05648cee0de34e531351118b14c58238f0a61b43559ac8851647a8 \
    --hash=sha256:a1a72d19c0ab84b4b73b6c47eeaade76d84b1973a51593ff1160a73df33d03d9 \
    --hash=sha256:de520b1555ae445cdc4f8f1cc7ccba12a19992bfafa7c292ebe7fe1fe5da6c53 \
    --hash=sha256:e0e6d5829b50a2ffcfcd2dbf08d02ac0d6919051a2e97c2ee27c99bc9916a245
grpcio-health-checking==1.85.1 --hash=sha256:05e1cb0cc69706f89e884d219c9b2b9da4f561c1c610e9987ee4492b9c826ad1
grpcio-reflection==1.85.1 --hash=sha256:476f98ec652a5d69f837781ef44c9ff65ebc116e58a6c1dc7712526ac071262a
protobuf==7.36.2 --hash=sha256:89f23aa53c24553a2416fd4fd1ec06f74fa42b14b546d8883128813f775bbfd2
typing-extensions==4.16.0 --hash=sha256:481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8
xds-protos==1.85.0 --hash=sha256:e1e7bfd9936389936b2c85660d9db0dae380f12678a594b983da40dd472f1760
PACKAGES
    )
fi
PYTHONPATH=$GRPCIO python3 -c 'import grpc, envoy.service.ratelimit.v3.rls_pb2; print("grpcio", grpc.__version__)' >&2
echo "$GRPCIO"
