# superopt with ONNX Runtime for the CPU. With --build-arg EXTRA=cuda: for NVIDIA GPUs, with the CUDA libraries.
FROM python:3.12-slim
ARG EXTRA=cpu
COPY . /src
RUN pip install --no-cache-dir "/src[${EXTRA}]" && rm -r /src
WORKDIR /models
ENTRYPOINT ["superopt"]
