"""Random small configs, legal to transformers and to us: CONFIGS has a function for each architecture.

A function takes a Dice and returns the arguments of transformers' config class. It draws the values that change what is
computed: shapes, norms, biases, ropes, windows, routers, kinds of layers.
"""
import random

VOCAB = 512
LENGTH = 256  # max_position_embeddings
WINDOWED = ("sliding_attention", "full_attention")
CONFIGS = {}


class Dice(random.Random):
    def pick(self, *values):
        return self.choice(values)

    def maybe(self, chance=0.5):
        return self.random() < chance

    def coins(self, *keys):
        return {key: self.maybe() for key in keys}

    def each(self, n, kinds):
        return [self.choice(kinds) for _ in range(n)]


def model(name, suffix="ForCausalLM"):
    def add(function):
        CONFIGS[name + suffix] = function
        return function
    return add


# Pieces, which `|` puts together.

def base(r, layers=None, head_dim=True, norm="rms_norm_eps", kv_heads=True, intermediate="intermediate_size"):
    """What nearly all have. Without `head_dim` the class has none: it is hidden_size / num_attention_heads."""
    num_kv_heads = r.pick(1, 2, 3)
    heads = num_kv_heads * r.pick(1, 2, 3) if kv_heads else r.pick(1, 2, 3, 4, 6)
    config = dict(
        vocab_size=VOCAB, num_hidden_layers=layers or r.pick(2, 3, 4), num_attention_heads=heads,
        max_position_embeddings=LENGTH, tie_word_embeddings=r.maybe(), bos_token_id=0, eos_token_id=2, pad_token_id=1)
    if head_dim:
        config["hidden_size"] = r.choice([size for size in (36, 48, 54, 64, 72, 80, 96) if size % heads == 0])
        config["head_dim"] = r.pick(8, 16, 24, 32)
    else:
        config["hidden_size"] = heads * r.pick(8, 16, 24)
    if kv_heads:
        config["num_key_value_heads"] = num_kv_heads
    if intermediate:
        config[intermediate] = r.pick(72, 96, 104)
    if norm:
        config[norm] = r.pick(1e-5, 1e-6, 1e-3) if norm == "rms_norm_eps" else 1e-5
    return config


def window(r):
    """Within a block, of a block, of no whole blocks, and longer than most prompts."""
    return r.pick(5, 16, 24, 40, 100)


def rope_of(r, *kinds):
    kind = r.pick(*kinds)
    rope = dict(rope_type=kind, rope_theta=r.pick(10000.0, 500000.0, 1e6))
    if kind != "default":
        rope["factor"] = r.pick(2.0, 4.0, 2.5)
    if kind == "llama3":
        rope |= dict(low_freq_factor=1.0, high_freq_factor=r.pick(4.0, 2.0),
                     original_max_position_embeddings=r.pick(64, 32))
    if kind == "yarn":
        rope["original_max_position_embeddings"] = r.pick(64, 128)
        if r.maybe(0.4):
            rope |= dict(beta_fast=r.pick(16.0, 32.0), beta_slow=r.pick(1.0, 2.0))
        if r.maybe(0.3):
            rope["truncate"] = False
        if r.maybe(0.3):
            rope["attention_factor"] = 1.2
        elif r.maybe(0.4):
            rope |= dict(mscale=r.pick(1.0, 0.7), mscale_all_dim=r.pick(1.0, 0.5))
    return rope


def rope(r, *kinds):
    return dict(rope_parameters=rope_of(r, *kinds))


def ropes(r, *kinds):
    """One for each kind of layers."""
    return dict(rope_parameters=dict(full_attention=rope_of(r, *kinds), sliding_attention=rope_of(r, "default")))


def partial_rope(r, *parts):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=r.pick(10000.0, 1e6),
                                     partial_rotary_factor=r.pick(*parts)))


def windows_from_a_layer(r, layers):
    """Qwen's two ways to mark layers with windows."""
    config = r.coins("use_sliding_window") | dict(sliding_window=window(r))
    if r.maybe():
        return config | dict(max_window_layers=r.pick(0, 1, 2, 28))
    kinds = WINDOWED if config["use_sliding_window"] else ("full_attention",)
    return config | dict(layer_types=r.each(layers, kinds))


def experts(r):
    return dict(num_experts=r.pick(4, 6, 8), num_experts_per_tok=r.pick(1, 2, 3), moe_intermediate_size=r.pick(24, 32))


def local_experts(r):
    return dict(num_local_experts=r.pick(4, 6, 8), num_experts_per_tok=r.pick(1, 2, 3))


def grouped_experts(r):
    """DeepSeek's: the best groups, then the best of their experts."""
    groups, chosen = r.pick((1, 1), (4, 2), (2, 1), (4, 4))
    return dict(
        n_routed_experts=8, num_experts_per_tok=r.pick(1, 2, 3), moe_intermediate_size=r.pick(24, 32), n_group=groups,
        topk_group=chosen, n_shared_experts=r.pick(1, 2), routed_scaling_factor=r.pick(1.0, 2.5),
        first_k_dense_replace=r.pick(0, 1, 2)) | r.coins("norm_topk_prob")


def latent(r, *kinds):
    """Latent attention (MLA): no head_dim, and as many KV heads as heads."""
    config = base(r, 3, head_dim=False) | grouped_experts(r) | rope(r, *kinds)
    return config | dict(
        num_key_value_heads=config["num_attention_heads"], q_lora_rank=r.pick(None, 24, 40),
        kv_lora_rank=r.pick(16, 32, 48), qk_nope_head_dim=r.pick(16, 24), qk_rope_head_dim=r.pick(8, 16),
        v_head_dim=r.pick(12, 20, 24), rms_norm_eps=1e-6, attention_bias=False)


def delta_layers(r, layers):
    """Gated delta nets; the first two layers are one of each kind."""
    key_heads = r.pick(1, 2)
    kinds = ["linear_attention", "full_attention"]
    return dict(
        linear_num_key_heads=key_heads, linear_num_value_heads=key_heads * r.pick(1, 2, 3),
        linear_conv_kernel_dim=r.pick(4, 2, 3), linear_key_head_dim=r.pick(8, 16),
        linear_value_head_dim=r.pick(8, 16, 24), layer_types=kinds + r.each(layers - 2, kinds))


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


# Dense models.

@model("Llama")
def llama(r):
    return (base(r) | rope(r, "default", "linear", "llama3", "yarn", "dynamic") | r.coins("attention_bias", "mlp_bias")
            | dict(hidden_act=r.pick("silu", "silu", "gelu_pytorch_tanh")))


@model("Mistral")
def mistral(r):
    return base(r) | rope(r, "default", "yarn", "linear") | dict(sliding_window=r.pick(None, window(r)))


@model("Ministral3")
def ministral3(r):
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, rope_theta=1e6, beta_fast=32.0,
                beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=r.pick(0.1, 0.5))
    return base(r) | dict(sliding_window=None, rope_parameters=yarn)


@model("Qwen2")
def qwen2(r):
    config = base(r, head_dim=False) | rope(r, "default", "yarn")
    return config | windows_from_a_layer(r, config["num_hidden_layers"])


@model("Qwen3")
def qwen3(r):
    config = base(r) | rope(r, "default", "yarn") | r.coins("attention_bias")
    return config | windows_from_a_layer(r, config["num_hidden_layers"])


@model("Glm")
@model("Glm4")
def glm(r):
    return base(r) | partial_rope(r, 0.5, 0.25, 1.0) | r.coins("attention_bias")


@model("Phi3")
def phi3(r):
    config = base(r, head_dim=False) | dict(sliding_window=r.pick(None, window(r)))
    size = config["hidden_size"] // config["num_attention_heads"]
    part = r.pick(1.0, 0.5 if size % 4 == 0 else 1.0)
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=part)
    if r.maybe():
        # The long factors are for longer texts than any here: transformers takes them for a whole pass, and a server,
        # which has cached keys, by max_model_len.
        config["original_max_position_embeddings"] = LENGTH
        pairs = range(int(size * part) // 2)
        rope |= dict(rope_type="longrope", original_max_position_embeddings=LENGTH,
                     short_factor=[1 + 0.1 * i for i in pairs], long_factor=[1 + 0.5 * i for i in pairs])
    return config | dict(rope_parameters=rope)


@model("Phi")
def phi(r):
    return (base(r, head_dim=False, norm="layer_norm_eps") | partial_rope(r, 0.5, 0.25, 1.0)
            | dict(hidden_act=r.pick("gelu_new", "gelu", "relu"), tie_word_embeddings=False))


@model("Cohere")
def cohere(r):
    return (base(r, head_dim=False, norm="layer_norm_eps") | rope(r, "default", "dynamic")
            | r.coins("use_qk_norm", "attention_bias") | dict(logit_scale=r.pick(0.25, 1.0)))


@model("Cohere2")
def cohere2(r):
    return (base(r, 4, norm="layer_norm_eps") | rope(r, "default") | r.coins("attention_bias")
            | dict(logit_scale=r.pick(0.25, 1.0), sliding_window=window(r), layer_types=r.each(4, WINDOWED)))


@model("Exaone4")
def exaone4(r):
    config = base(r, 4) | rope(r, "default", "llama3") | dict(sliding_window=r.pick(None, window(r), window(r)))
    if config["sliding_window"] is None:
        return config | dict(layer_types=["full_attention"] * 4)
    if r.maybe():
        return config | dict(layer_types=r.each(4, WINDOWED))
    return config | dict(sliding_window_pattern=r.pick(4, 2))


@model("StableLm")
def stable_lm(r):
    return (base(r, head_dim=False, norm="layer_norm_eps") | partial_rope(r, 0.25, 0.5, 1.0)
            | r.coins("use_qkv_bias"))


@model("Starcoder2")
def starcoder2(r):
    return base(r, head_dim=False, norm="norm_epsilon") | r.coins("use_bias") | dict(
        sliding_window=r.pick(None, window(r)), hidden_act=r.pick("gelu_pytorch_tanh", "gelu"))


@model("GPTNeoX")
def gpt_neox(r):
    return (base(r, head_dim=False, norm="layer_norm_eps", kv_heads=False) | partial_rope(r, 0.25, 0.5, 1.0)
            | r.coins("use_parallel_residual", "attention_bias")
            | dict(hidden_act=r.pick("gelu", "gelu_new"), tie_word_embeddings=False))


@model("Falcon")
def falcon(r):
    """Its three forms: one KV head, as many as heads, and the new decoder, with one norm or two."""
    form = r.pick("multi_query", "multi_head", "new", "new, one norm")
    config = base(r, head_dim=False, norm="layer_norm_epsilon", intermediate="ffn_hidden_size") | rope(r, "default")
    num_kv_heads = config.pop("num_key_value_heads")
    config |= r.coins("bias") | dict(
        multi_query=form == "multi_query", new_decoder_architecture=form.startswith("new"))
    if form.startswith("new"):
        config["num_kv_heads"] = num_kv_heads
    if form == "new, one norm":
        config["num_ln_in_parallel_attn"] = 1
    return config


@model("OPT")
def opt(r):
    config = base(r, head_dim=False, norm=None, kv_heads=False, intermediate="ffn_dim")
    return config | dict(word_embed_proj_dim=config["hidden_size"], activation_function=r.pick("relu", "gelu"))


@model("Bloom")
def bloom(r):
    config = base(r, head_dim=False, norm=None, kv_heads=False, intermediate=None)
    return config | dict(
        n_layer=config.pop("num_hidden_layers"), n_head=config.pop("num_attention_heads"), tie_word_embeddings=True)


@model("GPT2", "LMHeadModel")
def gpt2(r):
    config = base(r, head_dim=False, norm=None, kv_heads=False, intermediate=None)
    return config | r.coins("scale_attn_by_inverse_layer_idx") | dict(
        n_embd=config.pop("hidden_size"), n_layer=config.pop("num_hidden_layers"), tie_word_embeddings=True,
        n_head=config.pop("num_attention_heads"), n_positions=config.pop("max_position_embeddings"),
        n_inner=r.pick(None, 80), activation_function="gelu_new")


def granite_multipliers(r):
    return dict(embedding_multiplier=r.pick(1.0, 3.0), residual_multiplier=r.pick(1.0, 0.4),
                logits_scaling=r.pick(1.0, 4.0), attention_multiplier=r.pick(1.0, 0.2)) | r.coins("attention_bias")


@model("Granite")
def granite(r):
    return base(r, head_dim=False) | rope(r, "default") | granite_multipliers(r) | r.coins("mlp_bias")


@model("Olmo2")
def olmo2(r):
    return base(r, head_dim=False) | rope(r, "default", "yarn") | dict(attention_bias=r.maybe(0.3))


@model("Olmo3")
def olmo3(r):
    config = base(r, 4, head_dim=False) | ropes(r, "default", "yarn")
    full, windowed = config["rope_parameters"].values()
    windowed["rope_theta"] = full["rope_theta"]  # published models have one
    full.pop("truncate", None)  # transformers looks for it beside both ropes
    return config | dict(sliding_window=window(r), layer_types=r.each(4, WINDOWED))


@model("SmolLM3")
def smol_lm3(r):
    config = base(r, 4, head_dim=False) | r.coins("attention_bias", "mlp_bias", "use_sliding_window")
    config["sliding_window"] = window(r) if config["use_sliding_window"] else None
    if r.maybe():
        return config | dict(no_rope_layers=r.each(4, (0, 1)))
    return config | dict(no_rope_layer_interval=r.pick(2, 3))


@model("SeedOss")
def seed_oss(r):
    return base(r) | r.coins("attention_bias", "attention_out_bias", "mlp_bias")


@model("Arcee")
def arcee(r):
    return base(r) | rope(r, "default", "yarn") | r.coins("attention_bias", "mlp_bias")


@model("Cwm")
def cwm(r):
    return base(r, 4) | rope(r, "llama3") | dict(sliding_window=window(r), layer_types=r.each(4, WINDOWED))


@model("Ernie4_5")
def ernie(r):
    return base(r) | rope(r, "default") | dict(use_bias=False)


@model("HunYuanDenseV1")
def hunyuan_dense(r):
    by_alpha = dict(rope_type="dynamic", alpha=100.0, factor=1.0, rope_theta=10000.0, beta_fast=32, beta_slow=1,
                    mscale=1.0, mscale_all_dim=1.0)
    return base(r) | r.coins("attention_bias") | dict(rope_parameters=r.pick(rope_of(r, "default"), by_alpha))


@model("Gemma")
def gemma(r):
    return base(r) | r.coins("attention_bias") | dict(hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True)


def gemma_attention(r):
    return r.coins("attention_bias") | dict(
        sliding_window=window(r), query_pre_attn_scalar=r.pick(16, 30), final_logit_softcapping=r.pick(None, 10.0),
        tie_word_embeddings=True)


@model("Gemma2")
def gemma2(r):
    return base(r, 4) | gemma_attention(r) | dict(attn_logit_softcapping=r.pick(None, 20.0))


@model("Gemma3")
def gemma3(r):
    return base(r, 4) | gemma_attention(r) | ropes(r, "default", "linear") | dict(
        attn_logit_softcapping=None, layer_types=r.each(4, WINDOWED))


@model("Gemma4")
def gemma4(r):
    shared = r.pick(0, 1, 2)
    # Shared layers, the last ones, take the KV of a layer of their kind before them, so both kinds are first. The very
    # last layer is a full one whatever a config says.
    kinds = r.choice((WINDOWED, WINDOWED[::-1]))
    layer_types = [*kinds, *r.each(r.pick(1, 3), WINDOWED), "full_attention"]
    config = base(r, len(layer_types)) | r.coins("attention_k_eq_v", "use_double_wide_mlp", "enable_moe_block")
    config |= dict(
        layer_types=layer_types, sliding_window=window(r), global_head_dim=r.pick(32, 48), num_kv_shared_layers=shared,
        hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, final_logit_softcapping=r.pick(None, 12.0),
        hidden_size_per_layer_input=8 if shared else r.pick(0, 8), vocab_size_per_layer_input=VOCAB,
        attention_bias=r.maybe(), rope_parameters=dict(
            full_attention=dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=r.pick(0.25, 0.5)),
            sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
    if config["enable_moe_block"]:
        config |= dict(num_experts=6, top_k_experts=r.pick(1, 2), moe_intermediate_size=24)
    if config["attention_k_eq_v"]:
        config["num_global_key_value_heads"] = r.pick(1, config["num_key_value_heads"])
    return config


# Mixtures of experts.

@model("Qwen2Moe")
def qwen2_moe(r):
    return (base(r, head_dim=False) | experts(r) | r.coins("norm_topk_prob", "qkv_bias", "use_sliding_window")
            | dict(decoder_sparse_step=r.pick(1, 2), mlp_only_layers=r.pick([], [0]), sliding_window=window(r),
                   max_window_layers=r.pick(0, 1, 2), shared_expert_intermediate_size=r.pick(40, 48)))


@model("Qwen3Moe")
def qwen3_moe(r):
    return (base(r) | experts(r) | rope(r, "default", "yarn")
            | r.coins("norm_topk_prob", "attention_bias", "use_sliding_window")
            | dict(decoder_sparse_step=r.pick(1, 2), mlp_only_layers=r.pick([], [0], [1]), sliding_window=window(r)))


@model("Mixtral")
def mixtral(r):
    return base(r) | local_experts(r) | dict(sliding_window=r.pick(None, window(r)))


@model("MiniMaxM2")
def minimax_m2(r):
    return base(r) | local_experts(r) | partial_rope(r, 0.5, 1.0)


@model("Phimoe")
def phimoe(r):
    return base(r, head_dim=False) | r.coins("attention_bias", "lm_head_bias") | dict(
        num_local_experts=r.pick(4, 6), num_experts_per_tok=2, sliding_window=r.pick(None, window(r)),
        router_jitter_noise=0.01)


@model("GptOss")
def gpt_oss(r):
    config = without(base(r, 4), "tie_word_embeddings") | dict(
        num_local_experts=r.pick(4, 8), num_experts_per_tok=r.pick(1, 2, 4), sliding_window=window(r), hidden_size=64,
        head_dim=r.pick(16, 32), intermediate_size=r.pick(64, 96), attention_bias=True, rope_parameters=dict(
            rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False, rope_theta=150000.0,
            original_max_position_embeddings=64))
    return config | (dict(layer_types=r.each(4, WINDOWED)) if r.maybe() else {})


@model("DeepseekV3")
def deepseek_v3(r):
    return latent(r, "default", "yarn")


@model("DeepseekV2")
def deepseek_v2(r):
    return latent(r, "default") | dict(
        topk_method=r.pick("greedy", "group_limited_greedy"), norm_topk_prob=False, first_k_dense_replace=r.pick(0, 1))


@model("Glm4MoeLite")
def glm4_moe_lite(r):
    return without(latent(r, "default", "yarn"), "first_k_dense_replace") | dict(
        mlp_layer_types=r.each(3, ("dense", "sparse")), rope_interleave=True)


@model("GlmMoeDsa")
def glm_moe_dsa(r):
    """An indexer chooses few, some, or all of the keys."""
    return latent(r, "default") | dict(
        q_lora_rank=24, index_topk=r.pick(16, 64, 300), index_head_dim=24, index_n_heads=16)


@model("Glm4Moe")
def glm4_moe(r):
    return base(r, 3) | grouped_experts(r) | partial_rope(r, 0.5, 0.25, 1.0) | r.coins("attention_bias", "use_qk_norm")


@model("Olmoe")
def olmoe(r):
    return base(r, head_dim=False) | experts(r) | r.coins("norm_topk_prob") | dict(attention_bias=r.maybe(0.3))


@model("Ernie4_5_Moe")
def ernie_moe(r):
    return base(r, 4, head_dim=False) | dict(
        moe_num_experts=6, moe_k=r.pick(1, 2, 3), moe_num_shared_experts=r.pick(0, 1, 2), moe_intermediate_size=32,
        moe_layer_start_index=r.pick(0, 1, 2), moe_layer_end_index=r.pick(-1, 2, 3), moe_layer_interval=1,
        use_bias=False)


@model("HunYuanMoEV1")
def hunyuan_moe(r):
    return base(r) | rope(r, "default") | r.coins("attention_bias") | dict(num_experts=6, moe_topk=r.pick(1, 2))


@model("Llama4")
def llama4(r):
    return base(r, 4) | rope(r, "default", "llama3") | r.coins("use_qk_norm") | dict(
        intermediate_size=32, intermediate_size_mlp=96, num_local_experts=4, num_experts_per_tok=1,
        interleave_moe_layer_step=r.pick(1, 2), attention_chunk_size=r.pick(32, 64), attn_temperature_tuning=False,
        attention_bias=r.maybe(0.3), no_rope_layers=r.each(4, (0, 1)))


def granite_experts(r, layers=None):
    return base(r, layers, head_dim=False) | granite_multipliers(r) | dict(
        num_local_experts=r.pick(4, 6), num_experts_per_tok=r.pick(1, 2))


@model("GraniteMoe")
def granite_moe(r):
    return granite_experts(r)


@model("GraniteMoeShared")
def granite_moe_shared(r):
    return granite_experts(r) | dict(shared_intermediate_size=r.pick(0, 40))


# Layers with a state: state spaces, delta nets, short convolutions.

@model("GraniteMoeHybrid")
def granite_hybrid(r):
    config = granite_experts(r, 4) | r.coins("mamba_conv_bias")
    config |= dict(
        hidden_size=config["num_attention_heads"] * 16, layer_types=["mamba", *r.each(3, ("mamba", "attention"))],
        shared_intermediate_size=56, mamba_n_heads=r.pick(4, 8), mamba_d_state=16, mamba_n_groups=1,
        mamba_d_conv=r.pick(4, 2, 3), mamba_expand=r.pick(2, 1), mamba_chunk_size=16,
        position_embedding_type=r.pick("nope", "rope"))
    inner = config["mamba_expand"] * config["hidden_size"]
    config["mamba_d_head"] = r.pick("auto", inner // config["mamba_n_heads"])
    return config | (dict(num_local_experts=0) if r.maybe(0.4) else {})


@model("Qwen3Next")
def qwen3_next(r):
    layers = r.pick(3, 4)
    return (base(r, layers) | experts(r) | delta_layers(r, layers) | partial_rope(r, 0.25, 0.5, 1.0)
            | r.coins("norm_topk_prob") | dict(shared_expert_intermediate_size=40)
            | dict(mlp_only_layers=r.pick([], [1]), decoder_sparse_step=r.pick(1, 2)))


def qwen3_5_text(r):
    layers = r.pick(3, 4)
    return base(r, layers) | delta_layers(r, layers) | partial_rope(r, 0.25, 0.5, 1.0) | dict(head_dim=r.pick(16, 32))


@model("Qwen3_5")
def qwen3_5(r):
    return qwen3_5_text(r)


@model("Qwen3_5Moe")
def qwen3_5_moe(r):
    return without(qwen3_5_text(r), "intermediate_size") | experts(r) | dict(shared_expert_intermediate_size=40)


@model("KimiLinear")
def kimi_linear(r):
    """Kimi's delta attention, and latent attention without positions."""
    config = without(latent(r, "default"), "rope_parameters")
    return config | dict(
        num_experts=config.pop("n_routed_experts"), num_shared_experts=config.pop("n_shared_experts"),
        num_hidden_layers=4, q_lora_rank=None, mla_use_nope=True, tie_word_embeddings=False, linear_attn_config=dict(
            full_attn_layers=[2, 4], kda_layers=[1, 3], num_heads=r.pick(2, 3), head_dim=16,
            short_conv_kernel_size=r.pick(4, 3)))


@model("NemotronH")
def nemotron_h(r):
    layers = r.pick(4, 6)  # of a mamba, an attention, an MLP or experts each
    pattern = "M" + "".join(r.each(layers - 1, "MM*-E"))
    return base(r, layers, norm="layer_norm_epsilon") | r.coins("norm_topk_prob", "use_conv_bias") | dict(
        hybrid_override_pattern=pattern, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1,
        moe_intermediate_size=32, moe_shared_expert_intermediate_size=48, routed_scaling_factor=r.pick(1.0, 1.5),
        n_group=r.pick(1, 2), topk_group=1, mamba_num_heads=r.pick(4, 6), mamba_head_dim=r.pick(8, 16),
        ssm_state_size=16, n_groups=r.pick(1, 2), conv_kernel=r.pick(4, 3), chunk_size=16, tie_word_embeddings=False)


@model("FalconH1")
def falcon_h1(r):
    size, heads = r.pick(8, 16), r.pick(2, 4)
    multipliers = dict(
        attention_in_multiplier=1.2, attention_out_multiplier=0.8, embedding_multiplier=2.0, key_multiplier=0.4,
        lm_head_multiplier=0.6, mlp_multipliers=[0.9, 0.5], ssm_in_multiplier=1.3, ssm_out_multiplier=0.7,
        ssm_multipliers=[0.35, 0.25, 0.36, 0.5, 0.31])
    coins = r.coins("mamba_conv_bias", "mamba_rms_norm", "mamba_norm_before_gate")
    return base(r, 2) | rope(r, "default") | coins | multipliers | dict(
        mamba_d_ssm=size * heads, mamba_n_heads=heads, mamba_d_head=r.pick(size, "auto"), mamba_n_groups=r.pick(1, 2),
        mamba_d_state=16, mamba_d_conv=r.pick(4, 2), mamba_chunk_size=16)


@model("Jamba")
def jamba(r):
    attention, sparse, num_experts = r.pick(2, 4), r.pick(1, 2), r.pick(1, 4)
    return base(r, 4, head_dim=False) | r.coins("mamba_conv_bias") | dict(
        attn_layer_period=attention, attn_layer_offset=r.randrange(attention), expert_layer_period=sparse,
        expert_layer_offset=r.randrange(sparse), num_experts=num_experts,
        num_experts_per_tok=min(num_experts, r.pick(1, 2)), mamba_d_state=16, mamba_d_conv=r.pick(4, 2),
        mamba_expand=r.pick(2, 1), mamba_dt_rank=r.pick("auto", 6), use_mamba_kernels=False)


@model("Mamba2")
def mamba2(r):
    heads = r.pick(8, 16)
    return r.coins("use_conv_bias", "tie_word_embeddings") | dict(
        vocab_size=VOCAB, hidden_size=heads * 4, num_hidden_layers=2, num_heads=heads, head_dim=8, expand=2,
        state_size=16, n_groups=1, conv_kernel=r.pick(4, 2), chunk_size=16, layer_norm_epsilon=1e-5,
        bos_token_id=0, eos_token_id=2, pad_token_id=1)


@model("Lfm2")
def lfm2(r):
    layers = dict(full_attn_idxs=[1, 3])
    if r.maybe():
        layers = dict(layer_types=["conv", *r.each(3, ("conv", "full_attention"))])
    return (base(r, 4, head_dim=False, norm="norm_eps") | layers | r.coins("conv_bias", "block_auto_adjust_ff_dim")
            | dict(conv_L_cache=r.pick(3, 2, 4), block_multiple_of=r.pick(16, 32),
                   block_ffn_dim_multiplier=r.pick(1.0, 1.3)))


@model("Lfm2Moe")
def lfm2_moe(r):
    return base(r, 4, head_dim=False, norm="norm_eps") | r.coins("conv_bias", "norm_topk_prob") | dict(
        conv_L_cache=r.pick(3, 2), layer_types=["conv", *r.each(3, ("conv", "full_attention"))],
        num_dense_layers=r.pick(0, 1, 2), num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
        use_expert_bias=True, routed_scaling_factor=r.pick(1.0, 1.5))
