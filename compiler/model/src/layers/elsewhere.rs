//! Names of layers and functions in PyTorch and in papers, and how each is written here.
//!
//! Takes nothing; gives what the error for such a name proposes. `front/slips.rs` of the compiler's tests compiles what is proposed.
//!
//! Upper case and `_` do not count: `DropPath` is `drop_path`. Names that differ from one of odec's by case or a letter are not here: they are
//! close enough to be proposed.

const ATTENTION: &str =
    "`attention(heads: 4, causal)` has maps of its own; `attend(q, k, v, heads: 4)` has none";
const BATCH: &str = "norms over a batch or over tokens are not there: `rmsnorm` and `layernorm` normalise each token";
const BETWEEN: &str = "write `minimum(maximum(x, -1), 1)`";
const COLUMNS_OF: &str = "`columns(x, from: 0, to: width/2)` takes columns that stand side by side";
const CONCAT: &str = "`concat(x, y)` puts columns side by side";
const CONV: &str = "`conv(kernel: 4, causal, depthwise)` is a convolution along the tokens, `conv2d` one over a grid";
const DROP_PATH: &str = "`dropout(10%, each: sequence)` at the end of a field leaves it out of a step, for some sequences";
const GROUPED: &str = "in `attention(heads: 8, kv_heads: 2, causal)` four heads of queries share a head of keys and values";
const LINEAR: &str = "`linear(n)` is a map with a matrix of its own; `learn w[n, width] = normal`, `linear(w)` is one with the body's";
const MLP: &str =
    "`gelu(hidden: 4*width)`, `swiglu(hidden: 4*width)` and others are MLPs: `odec help layers`";
const POSITIONS: &str = "`embed learned(width: 64), positions(learned)` adds a row for each position; in a field such rows are `positions`";
const POWER: &str = "write `x^2`, `x^(1/3)` or `exp(p*log(x))`";
const RECURRENT: &str = "`min_gru`, `rg_lru` and `scan` are recurrences along the tokens; gates that read the previous hidden state, as in GRU and LSTM, cannot be written";
const STATE_SPACE: &str = "`selective_scan` is a selective state space, one number for each column; the cookbook has Mamba and Mamba-2";

/// Each with what is said of it.
pub(super) const NAMES: &[(&str, &str)] = &[
    (
        "alibi",
        "`alibi_attention(heads: 4)` has it, and so has `attend(q, k, v, heads: 4, causal, bias: alibi)`",
    ),
    ("attn", ATTENTION),
    ("batch_norm", BATCH),
    ("batch_norm1d", BATCH),
    ("batch_norm2d", BATCH),
    ("bmm", LINEAR),
    ("cat", CONCAT),
    ("causal_conv", CONV),
    ("causal_conv1d", CONV),
    ("chunk", COLUMNS_OF),
    ("clamp", BETWEEN),
    ("clip", BETWEEN),
    ("conv1d", CONV),
    (
        "cross_attention",
        "`attention(heads: 4, from: encoder)` reads the last state of the evolve `encoder`",
    ),
    ("dense", LINEAR),
    ("depthwise_conv", CONV),
    ("drop_path", DROP_PATH),
    ("einsum", LINEAR),
    (
        "embedding",
        "tokens are embedded by the model: `embed learned(width: 64)`",
    ),
    ("fc", LINEAR),
    ("feed_forward", MLP),
    ("ffn", MLP),
    ("flash_attention", ATTENTION),
    ("gather", COLUMNS_OF),
    ("gqa", GROUPED),
    (
        "group_norm",
        "`per_head(standardize, heads: 8)` normalises groups of columns",
    ),
    ("grouped_query_attention", GROUPED),
    ("gru", RECURRENT),
    (
        "h",
        "step sizes stand in schemes: `step x { return x + h*F(x) }`, and in `evolve … { h = 1/2 }`",
    ),
    (
        "heads",
        "`heads` is an argument: `attention(heads: 4, causal)`, `sum(x, heads: 4)`",
    ),
    ("hstack", CONCAT),
    ("identity", "what a layer is applied to is `id`"),
    ("instance_norm", BATCH),
    ("layer_norm", "`layernorm` is the layer"),
    (
        "lora",
        "a run is tuned by low-rank factors where its `train` block says `tune lora(rank: 8)`",
    ),
    ("lstm", RECURRENT),
    ("mamba", STATE_SPACE),
    (
        "mask",
        "which tokens are attended to is said by `causal`, `window` and `bias` of `attend`",
    ),
    ("matmul", LINEAR),
    ("mha", ATTENTION),
    ("mish", "write `id*tanh(softplus)`"),
    ("mlp", MLP),
    ("multi_head_attention", ATTENTION),
    (
        "norm",
        "`rmsnorm` and `layernorm` are norms with gains, `normalize(x)` has length 1, `sqrt(sum(square(x)))` is a length",
    ),
    (
        "normal",
        "random numbers stand in steps of schemes: `x + h*F(x) + sqrt(h)*normal(std: 1/10)`",
    ),
    ("positional_encoding", POSITIONS),
    ("pow", POWER),
    ("power", POWER),
    ("prelu", "`leaky_relu` has a slope that is not learned"),
    (
        "residual",
        "a step adds what the field computes to the state: `euler` gives `x + h*F(x)`",
    ),
    ("rms_norm", "`rmsnorm` is the layer"),
    ("rnn", RECURRENT),
    (
        "rope",
        "`rotary(heads: 4)` turns the columns of heads; `attention(heads: 4, causal, rope)` does so by itself",
    ),
    (
        "router",
        "`moe(experts: 8, top_k: 2, hidden: 4*width)` has one of its own",
    ),
    ("scaled_dot_product_attention", ATTENTION),
    ("sdpa", ATTENTION),
    (
        "se_block",
        "`channel_gate(rank: 32)` is squeeze-and-excitation of a token's columns",
    ),
    ("self_attention", ATTENTION),
    ("slice", COLUMNS_OF),
    ("split", COLUMNS_OF),
    (
        "squeeze_excitation",
        "`channel_gate(rank: 32)` is squeeze-and-excitation of a token's columns",
    ),
    ("ssm", STATE_SPACE),
    ("stack", CONCAT),
    ("stochastic_depth", DROP_PATH),
    ("swish", "`silu` is x sigmoid(x)"),
    (
        "t",
        "what depends on time reads `time(…)`, a layer; in schemes `t` is the time",
    ),
    (
        "transpose",
        "`linear(w, transposed)` multiplies by the transpose of a matrix",
    ),
];
