"""The trainer's configuration: one file and flags of the same names, validated once, without torch.

Precedence: flags, then the file (`--config`, TOML or YAML), then the defaults below. The groups only order
the help; keys are not nested, so that a flag and a key in the file have the same name.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cloudrec_contract.interval import PRIOR_UPTIME_S, Every, parse_interval
from trainer.base.notice_services import check_notice_service
from trainer.base.table_optimizers import COLUMN_CUTS, explain_column_cut

if TYPE_CHECKING:
    from collections.abc import Mapping

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_EPS = 1e-4
_SPELLINGS = {  # as pydantic reads true and false
    "on": ("on", "true", "yes", "1", "t", "y"),
    "off": ("off", "false", "no", "0", "f", "n"),
}
SWITCH = "switch"  # marks a setting that takes auto, on and off, and whose flag alone means on
_ADAGRADS = ("adagrad", "rowwise_adagrad")
MOST_SOURCE = 200_000  # characters of a module: a ConfigMap holds 1 MiB
DLRM_MODELS = ("dlrm", "dcn_v2")  # of trainer.models.model; the others follow trainer.models.protocol
EXPERT_MODELS = ("mmoe", "ple")  # of trainer.models.multi_task
MULTI_TASK_MODELS = (*EXPERT_MODELS, "din", "hstu")  # that take several labels
MODELS = (*DLRM_MODELS, "deepfm", "wide_deep", "two_tower", *MULTI_TASK_MODELS)
CommPrecision = Literal["fp32", "fp16", "bf16", "fp8", "int8"]
ShardingKind = Literal[
    "table_wise",
    "row_wise",
    "column_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
    "data_parallel",
]
KernelKind = Literal["fused", "fused_uvm", "fused_uvm_caching", "dense"]
NoticeServiceName = Annotated[str, AfterValidator(check_notice_service)]
_METADATA_URL = "_metadata_url"  # the end of those settings' names
CacheShare = Annotated[float, Field(gt=0, lt=1)]


def _read_interval(value: object) -> int | str:
    every = parse_interval(value)
    return str(value).strip().lower() if every.steps is None else every.steps


def _read_switch(value: object) -> object:
    """Return `on` or `off` for every spelling of true and false."""
    for choice, words in _SPELLINGS.items():
        if value is (choice == "on") or str(value).strip().lower() in words:
            return choice
    return value


Choice: TypeAlias = Literal["auto", "on", "off"]
Switch = Annotated[Choice, BeforeValidator(_read_switch)]
CheckpointInterval = Annotated[int | str, BeforeValidator(_read_interval)]


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, protected_namespaces=())


class TableConstraint(_Group):
    """The sharding types and kernels allowed for one table, instead of those for all tables."""

    sharding_types: Annotated[tuple[ShardingKind, ...], Field(min_length=1)] | None = None
    compute_kernels: Annotated[tuple[KernelKind, ...], Field(min_length=1)] | None = None
    uvm_cache_load_factor: CacheShare | None = None


class DataConfig(_Group):
    """What is read."""

    dataset_path: str | None = Field(None, description="path or file:// URI of the data")
    dataset_format: Literal["auto", "prepared", "criteo_tsv", "npy_days", "parquet"] = Field(
        "auto", description="auto looks at the names of the files in dataset_path"
    )
    dataset: str | None = Field(
        None,
        description="your own loader instead, MODULE:FACTORY (docs/own-loader.md)",
    )
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="rows held out where text or Parquet files come without a test folder"
    )
    hash_overflow: bool = Field(
        default=False,
        description="take ids beyond a table modulo its rows, where they are an error otherwise",
    )
    verify_data: bool = Field(default=True, description="check the data files' checksums before training")
    batch_size: PositiveInt = Field(
        1024, description="samples a step and RANK (the global batch is this times the ranks)"
    )
    global_batch_size: PositiveInt | None = Field(
        None,
        description="samples a step over ALL ranks, in place of batch_size: the same on any number of ranks",
    )
    eval_batch_size: PositiveInt | None = Field(
        None, description="samples a step and rank in evaluation (default: 4 batches)"
    )
    read_ahead: NonNegativeInt = Field(
        2, description="batches that a thread reads and lays out before their steps (0: no thread)"
    )
    shuffle: bool = Field(default=True, description="new order of the training samples each epoch (seeded)")


class ModelConfig(_Group):
    """What is trained."""

    preset: Literal["golden"] | None = Field(
        None,
        description="published defaults for the keys that are not given: golden, those of torchrec's "
        "golden_training (26 tables of 1,048,576 x 128: 14 GB)",
    )
    model: str = Field(
        "dlrm",
        description=f"{', '.join(MODELS)}, or your own as MODULE:FACTORY (docs/own-model.md)",
    )
    model_source: str | None = Field(
        None,
        max_length=MOST_SOURCE,
        description="text of the module of a MODULE:FACTORY model; `cloudrec train` sets it where nodes do "
        "not read this machine's files",
    )
    embedding_dim: PositiveInt = Field(
        64, description="width of every embedding table, unless the dataset's feature schema has another"
    )
    num_embeddings: PositiveInt | None = Field(
        None, description="rows of every table (default: what the dataset needs)"
    )
    num_embeddings_per_feature: tuple[PositiveInt, ...] | None = Field(
        None, description="rows of each table, comma-separated (default: what the dataset needs)"
    )
    dense_arch_layer_sizes: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = Field(
        (512, 256, 64), description="bottom MLP, comma-separated; the last must equal embedding_dim"
    )
    over_arch_layer_sizes: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = Field(
        (512, 256, 1), description="top MLP, comma-separated; the last must be 1"
    )
    interaction: Literal["dot", "dcn"] = Field(
        "dot", description="how features meet: pairwise dot products, or DCN-v2's low-rank crosses"
    )
    dcn_num_layers: PositiveInt = Field(3, description="crosses one after the other, with interaction dcn")
    dcn_low_rank_dim: PositiveInt = Field(512, description="rank of a cross's matrices, with interaction dcn")
    num_experts: PositiveInt = Field(
        4, description="experts of mmoe; shared ones of ple, which has as many for each task besides"
    )
    num_extraction_layers: PositiveInt = Field(2, description="layers of experts, with model ple")
    attention_layer_sizes: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = Field(
        (80, 40), description="hidden layers of din's attention, comma-separated"
    )
    attention_num_layers: PositiveInt = Field(2, description="attention layers of hstu")
    attention_num_heads: PositiveInt = Field(2, description="heads of each attention layer of hstu")
    temperature: PositiveFloat = Field(
        0.1, description="two_tower divides the products of its vectors, of length 1, by it"
    )
    recall_at: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = Field(
        (10, 50, 100), description="the k of recall@k in evaluations of two_tower, comma-separated"
    )
    managed_eviction: Literal["lfu", "lru"] = Field(
        "lfu",
        description="which id of a full table of encoding managed_collision gives its row to a new one: the "
        "one seen least often, or the one not seen for longest",
    )
    negatives: Literal["in_batch", "uniform", "mixed"] = Field(
        "in_batch",
        description="items that two_tower compares a row's with: those of the step's rows, num_negatives "
        "drawn with equal chances from those of the training rows, or both",
    )
    num_negatives: PositiveInt | None = Field(
        None, description="items that a step draws over ALL ranks, with negatives uniform or mixed"
    )
    embedding_init_scale: PositiveFloat = Field(1.0, description="tables start uniform in +-scale/sqrt(rows)")


class OptimizerConfig(_Group):
    """How it is trained."""

    learning_rate: PositiveFloat = Field(0.05, description="of the tables, at its height")
    table_optimizer: Literal["sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam"] = Field(
        "rowwise_adagrad",
        description="optimizer of the tables, fused into their backward pass",
    )
    dense_learning_rate: PositiveFloat = Field(0.003, description="of the dense part, at its height")
    dense_optimizer: Literal["adagrad", "adam", "adamw", "sgd"] = Field(
        "adam", description="optimizer of the dense part; adam decays weights as adamw does"
    )
    optimizer_eps: PositiveFloat | None = Field(
        None,
        description="the optimizers' epsilon (default: 1e-4; for adagrad and rowwise_adagrad tables 1 / the "
        "samples of a step over all ranks, which keeps the steps of rarely seen ids small)",
    )
    weight_decay: NonNegativeFloat = Field(0.0, description="L2 decay of the dense weights")
    lr_warmup_steps: NonNegativeInt = Field(0, description="steps over which the rates rise linearly from 0")
    lr_decay: Literal["none", "linear", "cosine", "polynomial"] = Field(
        "linear", description="how the rates fall to 0 over the run"
    )
    lr_decay_start: NonNegativeInt | None = Field(
        None, description="step at which polynomial decay starts (default: after the warm-up)"
    )
    lr_decay_steps: PositiveInt | None = Field(
        None, description="steps that polynomial decay takes (default: to the end of the run)"
    )
    lr_decay_power: PositiveFloat = Field(2.0, description="power of polynomial decay")
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = Field(
        "fp32",
        description="arithmetic of the dense part; its weights stay fp32, and fp16 scales the loss by itself",
    )
    embedding_weight_precision: Literal["fp32", "fp16"] = Field("fp32", description="storage of the tables")
    gradient_clip_norm: PositiveFloat | None = Field(
        None, description="limit on the norm of all dense gradients together"
    )
    table_gradient_clip_norm: PositiveFloat | None = Field(
        None,
        description="limit on the norm of the gradient that a sample sends to the vector of a feature; "
        "gradients are those of the batch's mean loss, so about 1/batch large",
    )
    gradient_accumulation_steps: PositiveInt = Field(
        1, description="steps whose mean gradient makes one dense update (tables update every step)"
    )
    activation_checkpointing: bool = Field(
        default=False, description="compute the MLPs' activations again in backward: less memory, slower"
    )


class WarmStartConfig(_Group):
    """What a new run takes from an earlier model."""

    init_from: str | None = Field(
        None,
        description="folder or bucket of an earlier run's checkpoints, or an export's folder: the run begins "
        "with its layers by name and its rows by value, and draws the rest; a run that has checkpoints "
        "resumes from them instead",
    )
    init_step: NonNegativeInt | None = Field(
        None, description="step of the checkpoint in init_from (default: the newest)"
    )
    init_optimizer: bool = Field(
        default=False, description="take the state of the optimizers from init_from, too"
    )
    init_match: Literal["value", "number"] = Field(
        "value",
        description="rows that belong together: value, by the vocabularies of both; number, for data whose "
        "encoding is unknown and equal",
    )
    init_map: dict[str, str] = Field(
        {},
        description="names in this model and their names in init_from, as JSON: {tables/items: "
        "tables/movies, dense/top.layers.0.weight: dense/net.first.weight}",
    )


class RunConfig(_Group):
    """How long, where to, and how often."""

    num_epochs: PositiveInt = Field(1, description="passes over the training split")
    num_iterations: PositiveInt | None = Field(None, description="stop after this many steps at the latest")
    eval_interval: NonNegativeInt = Field(0, description="steps between evaluations (0: at the end only)")
    target_auc: Annotated[float, Field(gt=0.5, lt=1)] | None = Field(
        None, description="end the run as soon as an evaluation reaches this AUC; needs eval_interval"
    )
    log_interval: PositiveInt = Field(50, description="steps between lines of metrics.jsonl")
    profile: Annotated[str, Field(pattern=r"^\d+:\d+$")] | None = Field(
        None, description="START:END, write a Chrome trace of these steps to OUTPUT_DIR/profile/rank-N.json"
    )
    output_dir: str = Field(".", description="folder of metrics.jsonl, summary.json and tensorboard/")
    wandb_project: str | None = Field(
        None,
        description="project at Weights & Biases for the numbers of metrics.jsonl; needs wandb installed",
    )
    mlflow_uri: Annotated[str, Field(pattern=r"^[^@]*$")] | None = Field(
        None,
        description="MLflow server for the same numbers, without a password; needs mlflow installed",
    )
    mlflow_experiment: str = Field("cloudrec", description="experiment at that server")
    checkpoint_dir: str | None = Field(
        None, description="folder or bucket of the checkpoints (default: OUTPUT_DIR/checkpoints)"
    )
    checkpoint_near_dir: str | None = Field(
        None,
        description="folder on this machine's own disk for copies of what it writes to a bucket, which it "
        "reads at a resume instead (empty: none); the bucket's checksums decide whether a copy is used",
    )
    checkpoint_near_gb: PositiveFloat | None = Field(
        None, description="limit of these copies in GB (default: half of the disk's free space)"
    )
    checkpoint_interval: CheckpointInterval = Field(
        "auto",
        description="between checkpoints: auto (by what a checkpoint costs and how often this run was "
        "interrupted; the first comes after about a second and measures the cost), a time (30s, 10m), or "
        "steps (0: only at the end and at a stop). auto saves only at the end and at a stop, too, where "
        "--dataset gives a loader that cannot resume",
    )
    machine_uptime_hours: PositiveFloat | None = Field(
        None,
        description="that a machine is expected to run before it is lost without a notice, for auto, which "
        "learns from this run's interruptions besides (default: 1.7, as spot machines; cloudrec sets 168 on "
        "its clusters without spot nodes)",
    )
    keep_checkpoints: PositiveInt = Field(
        2,
        description="newest committed checkpoints to keep; if more than 1, also the newest one that shares "
        "no file with the last, to resume from if a file is damaged",
    )
    keep_every_steps: NonNegativeInt = Field(
        0, description="keep every checkpoint whose step is a multiple of this, too (0: none)"
    )
    checkpoint_mode: Literal["auto", "full", "incremental"] = Field(
        "auto",
        description="full: everything each time; incremental: the rows touched since the last checkpoint; "
        "auto: incremental unless most rows were touched",
    )
    checkpoint_chain: Annotated[int, Field(gt=0, le=200)] = Field(
        8, description="incremental checkpoints one upon another before they are merged"
    )
    checkpoint_quantization: Literal["none", "int8"] = Field(
        "none", description="bits of the weights in incremental checkpoints; none restores bit for bit"
    )
    checkpoint_async: bool = Field(
        default=True, description="write checkpoints in a process beside the training, which continues"
    )
    checkpoint_verify_mb_s: NonNegativeFloat = Field(
        20.0,
        description="MB/s at which one rank reads the newest checkpoint's files again, in the background, to "
        "find damage before a resume needs them; the next checkpoint then begins a new chain (0: never)",
    )
    save_failure_seconds: NonNegativeFloat = Field(
        7200.0,
        description="that training continues while no checkpoint can be written (a full disk, a store that "
        "does not answer); saves are tried again in the meantime (0: the first failure ends the run)",
    )
    preemption_notices: tuple[NoticeServiceName, ...] = Field(
        (), description="clouds whose metadata service is watched for the end of this machine"
    )
    preemption_notice_seconds: PositiveFloat | None = Field(
        None, description="between such a notice and the end of this process (default: as the cloud states)"
    )
    aws_metadata_url: str | None = Field(
        None, description="of EC2's (default: $AWS_EC2_METADATA_SERVICE_ENDPOINT, or http://169.254.169.254)"
    )
    azure_metadata_url: str | None = Field(
        None, description="of Azure's Scheduled Events (default: http://169.254.169.254)"
    )
    gcp_metadata_url: str | None = Field(
        None, description="of GCP's (default: http://$GCE_METADATA_HOST, or http://metadata.google.internal)"
    )
    stop_grace_seconds: PositiveFloat | None = Field(
        None, description="between SIGTERM and the kill; a checkpoint that takes longer is not begun"
    )
    resume: bool = Field(
        default=True, description="resume from the newest committed checkpoint, if there is one"
    )
    seed: NonNegativeInt = Field(0, description="of the weights and of the data's order")
    deterministic: bool = Field(
        default=False,
        description="two runs of one configuration on as many ranks, interrupted or not, end with the same "
        "model_digest; gradients are averaged in the order of ranks for it",
    )
    model_digest: bool = Field(
        default=True,
        description="summary.json has a hash of the whole model; false saves reading all tables at the end",
    )


class SystemConfig(_Group):
    """What it runs on."""

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where there is a GPU")
    threads: PositiveInt | None = Field(
        None, description="CPU threads a rank (default: this machine's cores / local ranks)"
    )
    compile: Switch = Field(
        "auto",
        description="compile the dense part with torch.compile; auto does it on GPUs with Triton, unless "
        "deterministic is on, and continues without it if that fails; on CPUs it is no faster. true and "
        "false are on and off",
        json_schema_extra={SWITCH: True},
    )
    table_kernel: Literal["auto", "native", "torch", "fbgemm"] = Field(
        "auto",
        description="what looks up and updates sharded tables on CPUs: C compiled on first use, torch, or "
        "fbgemm; auto is native where there is a C compiler, else torch; fp16 tables are always fbgemm's",
    )
    device_input: Literal["auto", "off"] = Field(
        "auto",
        description="auto: on GPUs, rows are copied as stored, and shuffled, checked and laid out on the "
        "device, except for your own loaders, sequences, negatives and managed_collision; off: on the CPU",
    )
    cuda_graphs: Literal["auto", "off"] = Field(
        "auto",
        description="auto: with one GPU, the dense part of a DLRM runs as CUDA graphs, which saves the host "
        "the launch of each kernel; off: it launches them one by one",
    )
    pipeline: Literal["auto", "plain", "sparse_dist", "fused_sparse_dist", "prefetch", "semi_sync"] = Field(
        "auto",
        description="plain copies the next batch to a GPU meanwhile; sparse_dist exchanges its ids with "
        "other ranks, too; fused_sparse_dist also looks up its rows while the dense part is updated; "
        "prefetch fills the caches of fused_uvm_caching a step ahead; semi_sync looks up rows before the "
        "step before has updated them, which is another algorithm. auto is sparse_dist on several GPUs, else "
        "plain",
    )
    model_parallel: bool = Field(
        default=True, description="tables are sharded over the ranks, unless data_parallel is on"
    )
    data_parallel: bool = Field(
        default=False, description="every rank has all tables, kept equal by DDP; for small models"
    )
    sharding_types: Annotated[tuple[ShardingKind, ...], Field(min_length=1)] = Field(
        ("table_wise", "row_wise", "table_row_wise"),
        description="what the planner may choose from; column_wise, table_column_wise and grid_shard split "
        "rows, so they need table_optimizer sgd, adagrad or adam",
    )
    compute_kernels: Annotated[tuple[KernelKind, ...], Field(min_length=1)] = Field(
        ("fused", "dense"),
        description="where tables may be: fused, in the device's memory; fused_uvm, fused_uvm_caching, in "
        "the host's; dense is for data_parallel",
    )
    uvm_cache_load_factor: CacheShare = Field(
        0.2, description="part of a fused_uvm_caching table's rows that GPU memory keeps"
    )
    table_constraints: dict[str, TableConstraint] = Field(
        {},
        description="by table, as JSON: {C3: {sharding_types: [row_wise], compute_kernels: [fused]}}, and "
        "uvm_cache_load_factor likewise",
    )
    planner: Literal["greedy", "dynamic_programming"] = Field(
        "greedy", description="how the planner searches; dynamic_programming weighs memory against time"
    )
    sharding_plan: str | None = Field(
        None,
        description="JSON file with the plan to use, as saved in OUTPUT_DIR/sharding_plan.json; or "
        "`checkpoint`, that of the checkpoint which the run resumes (as FORCE_LOAD_SHARDING_PLAN=1 does)",
    )
    hbm_cap_gb: PositiveFloat | None = Field(
        None, description="GB of GPU memory a rank that the planner may count on (default: what is there)"
    )
    ddr_cap_gb: PositiveFloat | None = Field(
        None, description="GB of host memory a rank that the planner may count on (default: its share)"
    )
    qcomm_forward_precision: CommPrecision = Field("fp32", description="of embeddings sent between ranks")
    qcomm_backward_precision: CommPrecision = Field("fp32", description="of their gradients")


class TrainerConfig(SystemConfig, RunConfig, WarmStartConfig, OptimizerConfig, ModelConfig, DataConfig):
    """Everything a run is made from; frozen."""

    @property
    def metadata_urls(self) -> Mapping[str, str | None]:
        """The URL of each cloud's metadata service, by cloud; None means the default."""
        return {name.removesuffix(_METADATA_URL): url for name, url in self if name.endswith(_METADATA_URL)}

    @model_validator(mode="after")
    def _layers_fit(self) -> Self:
        last = self.dense_arch_layer_sizes[-1]
        if last != self.embedding_dim and self.model in DLRM_MODELS:
            raise ValueError(
                f"dense_arch_layer_sizes ends with {last} but embedding_dim is {self.embedding_dim}; "
                "the bottom MLP's output is crossed with the embeddings, so they must be equal: end with "
                f"{self.embedding_dim} or set embedding_dim to {last}"
            )
        if self.over_arch_layer_sizes[-1] != 1:
            raise ValueError(
                f"over_arch_layer_sizes ends with {self.over_arch_layer_sizes[-1]}; "
                "the top MLP gives one logit, so it must end with 1"
            )
        if self.embedding_dim % 4:
            raise ValueError(
                f"embedding_dim is {self.embedding_dim}; the embedding kernels need a multiple of 4: "
                f"take {self.embedding_dim + 4 - self.embedding_dim % 4}"
            )
        if self.num_embeddings is not None and self.num_embeddings_per_feature is not None:
            raise ValueError("num_embeddings and num_embeddings_per_feature are both set; give one of them")
        if self.target_auc is not None and not self.eval_interval:
            raise ValueError(
                f"target_auc is {self.target_auc} but eval_interval is 0, so the AUC would be known only "
                "after the last step; set eval_interval to the steps between evaluations"
            )
        return self

    @model_validator(mode="after")
    def _warm_start_has_a_source(self) -> Self:
        given = (
            ("init_step", self.init_step is not None),
            ("init_optimizer", self.init_optimizer),
            ("init_match", self.init_match != "value"),
            ("init_map", bool(self.init_map)),
        )
        for name, is_set in given:
            if is_set and self.init_from is None:
                raise ValueError(f"{name} needs init_from, the earlier model; set it, or leave {name} out")
        return self

    @model_validator(mode="after")
    def _model_is_known(self) -> Self:
        if self.model not in MODELS and ":" not in self.model:
            close = difflib.get_close_matches(self.model, MODELS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"model is {self.model!r}; it is {', '.join(MODELS)} or MODULE:FACTORY{hint}")
        if self.model not in DLRM_MODELS:
            for name, value, default in (
                ("interaction", self.interaction, "dot"),
                ("compile", "off" if self.compile == "auto" else self.compile, "off"),
            ):
                if value != default:
                    raise ValueError(
                        f"{name} is {value}, which only {' and '.join(DLRM_MODELS)} have; leave it out"
                    )
        return self

    @model_validator(mode="after")
    def _negatives_fit(self) -> Self:
        draws = self.negatives != "in_batch"
        if draws and self.model in MODELS and self.model != "two_tower":
            raise ValueError(
                f"negatives is {self.negatives}, which only two_tower and models like it have, but model is "
                f"{self.model}; leave it out"
            )
        if draws and self.num_negatives is None:
            raise ValueError(
                f"negatives is {self.negatives}, but num_negatives is not given; say how many items a step "
                "draws over all ranks, as in 1024"
            )
        if not draws and self.num_negatives is not None:
            raise ValueError(
                f"num_negatives is {self.num_negatives}, but negatives is in_batch, which draws none; set "
                "negatives to uniform or mixed, or leave num_negatives out"
            )
        return self

    @model_validator(mode="after")
    def _parallelism_fits(self) -> Self:
        if not self.model_parallel and not self.data_parallel:
            raise ValueError("model_parallel is off and data_parallel too; turn one of them on")
        if self.data_parallel and (self.sharding_plan is not None or self.table_constraints):
            raise ValueError(
                "data_parallel replicates every table, so sharding_plan and table_constraints mean nothing; "
                "leave them out, or leave data_parallel out"
            )
        if self.lr_decay != "polynomial" and not (
            self.lr_decay_start is None and self.lr_decay_steps is None
        ):
            raise ValueError(
                f"lr_decay_start and lr_decay_steps need lr_decay polynomial, but it is {self.lr_decay}"
            )
        return self

    @model_validator(mode="after")
    def _rows_stay_whole(self) -> Self:
        allowed = {"sharding_types": self.sharding_types}
        for table, own in self.table_constraints.items():
            allowed[f"table_constraints: sharding_types of {table}"] = own.sharding_types or ()
        for key, kinds in {} if self.data_parallel else allowed.items():
            for kind in sorted(COLUMN_CUTS.intersection(kinds)):
                if problem := explain_column_cut(self.table_optimizer, f"{key} allows {kind}"):
                    raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _is_repeatable(self) -> Self:
        if self.deterministic and self.pipeline == "semi_sync":
            raise ValueError(
                "pipeline is semi_sync, whose rows are a step older than plain's except after an evaluation "
                "or a restart, but deterministic is on; take another pipeline, or leave deterministic out"
            )
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.dataset is not None and self.dataset_path is not None:
            raise ValueError(
                f"dataset {self.dataset} and dataset_path {self.dataset_path} are both set; give one of them"
            )
        return self

    @model_validator(mode="after")
    def _profile_is_a_range(self) -> Self:
        start, _, end = (self.profile or "0:1").partition(":")
        if int(start) >= int(end):
            raise ValueError(
                f"profile is {self.profile}; START:END are the first step and the one after the last, "
                "as in 100:110"
            )
        return self

    @property
    def dense_eps(self) -> float:
        """The epsilon of the dense part's optimizer."""
        return self.optimizer_eps or _EPS

    def table_eps(self, ranks: int) -> float:
        """Return the epsilon of the tables' optimizer.

        Gradients are those of a step's mean loss, so one sample sends a row a gradient of about 1 / samples.
        With an epsilon of this size, the first hundreds of samples of an id make small steps, and its vector
        does not fit their noise.
        """
        if self.optimizer_eps is not None or self.table_optimizer not in _ADAGRADS:
            return self.optimizer_eps or _EPS
        return 1.0 / (self.global_batch_size or self.batch_size * ranks)

    @property
    def checkpoint_every(self) -> Every:
        """When checkpoints are due."""
        return parse_interval(self.checkpoint_interval)

    @property
    def machine_uptime_s(self) -> float:
        """The seconds that a machine is expected to run before it is lost without a notice."""
        hours = self.machine_uptime_hours
        return PRIOR_UPTIME_S if hours is None else hours * 3600

    @property
    def checkpoint_uri(self) -> str:
        """The URI of the checkpoints: checkpoint_dir, or OUTPUT_DIR/checkpoints."""
        return self.checkpoint_dir or f"{self.output_dir.rstrip('/')}/checkpoints"


GROUPS: tuple[type[_Group], ...] = (
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    WarmStartConfig,
    RunConfig,
    SystemConfig,
)
