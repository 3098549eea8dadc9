# The trainer's image, one target a fabric:
#   plain  TCP alone, or no GPU; the storage of every cloud
#   efa    AWS: libfabric, the EFA provider and the NCCL plug-in that uses it
#   ib     Azure ND: InfiniBand's verbs, and the topology files that AKS's nodes lack
#   gcp    GKE A3: the plug-ins come from the node, in the version that fits its driver
# `cloudrec image build` builds it; so does any builder:
#   docker build --target efa -t cloudrec:efa .
#   podman build --target plain --build-arg DEVICE=cpu -t cloudrec:cpu .
# A private package index is passed as a secret, which no layer contains: --secret id=pip,src=pip.conf

# Any image with apt and Python 3.11 or newer: debian:bookworm has 3.11, ubuntu:24.04 has 3.12. CUDA's libraries
# come with torch's packages, and the driver is the node's, so no base image of NVIDIA's is needed.
ARG BASE=docker.io/library/debian:bookworm-slim@sha256:96e378d7e6531ac9a15ad505478fcc2e69f371b10f5cdf87857c4b8188404716
# cuda or cpu
ARG DEVICE=cuda
ARG VERSION=0

FROM ${BASE} AS base
ARG DEVICE
# The compiler stays: the table kernels are compiled for the node's processor, and torch.compile needs one too
# (on GPUs with Python's headers). KubeRay's probes use wget.
RUN apt-get update \
    && headers="" && if [ "${DEVICE}" = cuda ]; then headers=python3-dev; fi \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
       ca-certificates g++ gcc libc6-dev python3 wget ${headers} \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
# By number in USER, so that Kubernetes can see that it is not root.
RUN groupadd --gid 10001 cloudrec \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /cloudrec/home --shell /usr/sbin/nologin cloudrec \
    && install --directory --owner 10001 --group 10001 --mode 0755 /cloudrec /cloudrec/home
ENV PATH=/opt/cloudrec/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/cloudrec/home \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
LABEL org.opencontainers.image.title="cloudrec trainer" \
      org.opencontainers.image.description="Trains sharded TorchRec models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      cloudrec.device="${DEVICE}"

# The build stage; the others copy from it, so the image has no pip and no package manager's cache.
FROM base AS build
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=
RUN python3 -m venv /opt/cloudrec

# From a checkout, or from the wheel that an installed cloudrec writes to the build context.
FROM build AS wheel
COPY . /source
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    mkdir /wheels \
    && if ls /source/*.whl > /dev/null 2>&1; then cp /source/*.whl /wheels/; \
       else python -m pip wheel --no-deps --wheel-dir /wheels /source; fi

# The three must match. torchrec's metadata asks for the CUDA build of fbgemm whatever the device, and for an old
# torchmetrics, so the two are installed last and without their needs, which the extra trainer-cpu names.
FROM build AS torch
ARG DEVICE
ARG TORCH=2.13.0
ARG FBGEMM=1.8.0
ARG TORCHREC=1.8.0
ARG TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
COPY constraints.txt /constraints.txt
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    index="" && fbgemm=fbgemm-gpu \
    && if [ "${DEVICE}" = cpu ]; then \
         fbgemm=fbgemm-gpu-cpu; index="${TORCH_CPU_INDEX:+--extra-index-url=${TORCH_CPU_INDEX}}"; \
       fi \
    && echo "torch==${TORCH}" >> /constraints.txt \
    && echo "fbgemm-gpu-cpu==${FBGEMM}" >> /constraints.txt \
    && printf "%s\n" "${fbgemm}==${FBGEMM}" "torchrec==${TORCHREC}" > /last.txt \
    && python -m pip install --constraint /constraints.txt ${index} torch

FROM torch AS venv-plain
COPY --from=wheel /wheels /wheels
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m pip install --constraint /constraints.txt \
       "$(ls /wheels/*.whl)[trainer-cpu,parquet,ray,kubernetes,aws,azure,gcp]" \
    && python -m pip uninstall --yes fbgemm-gpu-cpu \
    && python -m pip install --no-deps --requirement /last.txt \
    && python -m pip uninstall --yes pip

# checkov:skip=CKV_DOCKER_2: a run is a job with an exit code, and Kubernetes ignores HEALTHCHECK
# checkov:skip=CKV_DOCKER_7: the base's digest is in the argument BASE
FROM base AS plain
COPY --from=venv-plain /opt/cloudrec /opt/cloudrec
ARG VERSION
LABEL org.opencontainers.image.version="${VERSION}" cloudrec.fabric="plain"
WORKDIR /cloudrec
USER 10001:10001
CMD ["python", "-P", "-m", "trainer", "--help"]

FROM torch AS venv-efa
COPY --from=wheel /wheels /wheels
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m pip install --constraint /constraints.txt \
       "$(ls /wheels/*.whl)[trainer-cpu,parquet,ray,kubernetes,aws]" \
    && python -m pip uninstall --yes fbgemm-gpu-cpu \
    && python -m pip install --no-deps --requirement /last.txt \
    && python -m pip uninstall --yes pip

# 1.50.0 (2026-08-21): libfabric 2.6.0amzn1.0, rdma-core 64.0, aws-ofi-nccl 1.21.1. The kernel module and the
# limits are the node's, so the installer skips both. MPI, which it also contains, is not used.
FROM base AS efa
ARG EFA_INSTALLER=1.50.0
ARG EFA_SOURCE=https://efa-installer.amazonaws.com
ARG EFA_KEY=4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends curl gpg gpg-agent \
    && mkdir -m 0700 /tmp/efa /tmp/efa/keys && cd /tmp/efa \
    && for file in aws-efa-installer.key "aws-efa-installer-${EFA_INSTALLER}.tar.gz" \
                   "aws-efa-installer-${EFA_INSTALLER}.tar.gz.sig"; do \
         curl --fail --silent --show-error --location --retry 3 --remote-name "${EFA_SOURCE}/${file}"; \
       done \
    && gpg --homedir keys --batch --quiet --import aws-efa-installer.key \
    && gpg --homedir keys --batch --status-fd 1 --verify "aws-efa-installer-${EFA_INSTALLER}.tar.gz.sig" \
           "aws-efa-installer-${EFA_INSTALLER}.tar.gz" > status \
    && grep --quiet "VALIDSIG.*${EFA_KEY}" status \
    && tar --extract --file "aws-efa-installer-${EFA_INSTALLER}.tar.gz" && cd aws-efa-installer \
    && DEBIAN_FRONTEND=noninteractive ./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify \
    && mpi="$(dpkg-query --show --showformat '${Package} ' 'openmpi*-aws' 2> /dev/null || true)" \
    && apt-get purge --yes --autoremove ${mpi} curl gpg gpg-agent \
    && cd / && rm -rf /tmp/efa /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log && ldconfig \
    && ldconfig --print-cache | grep --quiet libnccl-net && ldconfig --print-cache | grep --quiet libfabric
COPY --from=venv-efa /opt/cloudrec /opt/cloudrec
ARG VERSION
LABEL org.opencontainers.image.version="${VERSION}" cloudrec.fabric="efa"
WORKDIR /cloudrec
USER 10001:10001
CMD ["python", "-P", "-m", "trainer", "--help"]

FROM torch AS venv-ib
COPY --from=wheel /wheels /wheels
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m pip install --constraint /constraints.txt \
       "$(ls /wheels/*.whl)[trainer-cpu,parquet,ray,kubernetes,azure]" \
    && python -m pip uninstall --yes fbgemm-gpu-cpu \
    && python -m pip install --no-deps --requirement /last.txt \
    && python -m pip uninstall --yes pip

# The topologies are those of Azure's own HPC images, and lie where those have them: NCCL_TOPO_FILE names one.
FROM base AS ib
ARG TOPOLOGY_SOURCE=https://raw.githubusercontent.com/Azure/azhpc-images
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
       curl ibverbs-providers ibverbs-utils libibverbs1 librdmacm1 rdma-core \
    && mkdir /opt/microsoft && cd /opt/microsoft \
    && curl --fail --silent --show-error --location --retry 3 --remote-name \
       "${TOPOLOGY_SOURCE}/4a4565a0c0aa9d6944c53420155936061b9c3a98/topology/ndv4-topo.xml" \
    && curl --fail --silent --show-error --location --retry 3 --remote-name \
       "${TOPOLOGY_SOURCE}/6db46dfe3361bb58405d9c2c72fea57ae4834edf/topology/ndv5-topo.xml" \
    && echo "c3583efb0b6e53f52410e32643b46bb6af99f5f34dcebc1868c47c233f84d2cf  ndv4-topo.xml" > sums \
    && echo "aee1de4a11dbd049a384b79a1c6c5dc293a662115a5e303fbaa53bb099dfaf6d  ndv5-topo.xml" >> sums \
    && sha256sum --check sums && rm sums && chmod 0644 ./*.xml \
    && apt-get purge --yes --autoremove curl \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
COPY --from=venv-ib /opt/cloudrec /opt/cloudrec
ARG VERSION
LABEL org.opencontainers.image.version="${VERSION}" cloudrec.fabric="ib"
WORKDIR /cloudrec
USER 10001:10001
CMD ["python", "-P", "-m", "trainer", "--help"]

FROM torch AS venv-gcp
COPY --from=wheel /wheels /wheels
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m pip install --constraint /constraints.txt \
       "$(ls /wheels/*.whl)[trainer-cpu,parquet,ray,kubernetes,gcp]" \
    && python -m pip uninstall --yes fbgemm-gpu-cpu \
    && python -m pip install --no-deps --requirement /last.txt \
    && python -m pip uninstall --yes pip

FROM base AS gcp
COPY --from=venv-gcp /opt/cloudrec /opt/cloudrec
ARG VERSION
LABEL org.opencontainers.image.version="${VERSION}" cloudrec.fabric="gcp"
WORKDIR /cloudrec
USER 10001:10001
CMD ["python", "-P", "-m", "trainer", "--help"]
