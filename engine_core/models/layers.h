#pragma once

// The parts that decoder layers are built from, and their loaders. Names of tensors are HF's.
// Thread: engine loop. Owns: packed weights. Shapes: H hidden.

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine_core/models/load_context.h"
#include "engine_core/weights/stored_matrix.h"

namespace tandem {

class AdapterPicker;

struct LinearLayer {
  std::unique_ptr<PackedMatrix> weight;
  OwnedTensor bias;  // empty view: none
  int adapter_site = kNoAdapterSite;
};

// out = layer(x), with what the step's adapters add.
void MultiplyBy(const LinearLayer& layer, const Tensor& out, const Tensor& x,
                LinearEpilogue epilogue, AdapterPicker* adapters, Ops* ops);

// Whether, and as what, adapters may change a matrix.
enum class AdaptedAs { kLinear, kEmbedding, kNothing };

struct LinearOptions {
  bool has_bias = false;
  bool is_gated = false;                    // for LinearEpilogue::kSiluAndMul and kGeluAndMul
  std::optional<WeightFormat> format = {};  // else context.formats.layers
  AdaptedAs adapted_as = AdaptedAs::kLinear;
  // Of the blocks, each rows of a module; empty: they have the checkpoint's names.
  std::vector<std::string> modules = {};
  // Of each of these modules: all its rows, and which of them the blocks are.
  int64_t module_rows = 0;
  Slice rows_of_module = {};
};

// Stacks the blocks, which have equal columns, and packs them as one matrix.
StatusOr<LinearLayer> LoadLinear(const LoadContext& context, std::span<const StoredMatrix> blocks,
                                 const LinearOptions& options = {});
// Registers a matrix of these blocks for adapters, which is packed: the number of its site.
int AddAdapterSite(const LoadContext& context, std::span<const StoredMatrix> blocks,
                   const LinearOptions& options, const PackedMatrix& matrix);
// The biases of the blocks' rows, concatenated.
StatusOr<OwnedTensor> LoadBias(const LoadContext& context, std::span<const StoredMatrix> blocks);
// A vector as float32, `offset` added to each number.
StatusOr<OwnedTensor> LoadVector(const LoadContext& context, const std::string& name, int64_t size,
                                 float offset = 0);
// The same with each number multiplied.
StatusOr<OwnedTensor> LoadScaledVector(const LoadContext& context, const std::string& name,
                                       int64_t size, double factor);

struct NormLayer {
  OwnedTensor weight;  // [H]; empty view: the norm's input is used as it is
  OwnedTensor bias;    // [H]; empty view: an RMS norm, else a LayerNorm
};

// name.weight, plus `offset`, of the hidden size.
StatusOr<NormLayer> LoadRmsNorm(const LoadContext& context, const std::string& name,
                                float offset = 0);
// name.weight and name.bias of the hidden size; without a bias, zeros.
StatusOr<NormLayer> LoadLayerNorm(const LoadContext& context, const std::string& name,
                                  bool has_bias = true);

struct AttentionLayer {
  LinearLayer qkv;  // merged rows q, k, v; with has_gate then those of the gate, as many as q's
  bool has_gate = false;  // what the heads compute is multiplied by sigmoid(gate)
  LinearLayer out;
  std::optional<HeadShare> heads;  // the rank's, where they are not those of the whole model
  bool keys_are_values = false;    // qkv has no rows of v, whose numbers are k's
  bool has_own_kv = true;      // else qkv is q alone, for the keys and values of an earlier layer
  OwnedTensor q_norm, k_norm;  // [head_dim]; empty view: none
  OwnedTensor v_norm;          // [head_dim]; empty view: none
  OwnedTensor q_head_norms;    // [own q_size], a LayerNorm for each head; empty view: none
  OwnedTensor k_head_norms;    // [own kv_size]
  OwnedTensor no_bias;         // [head_dim] zeros, of these norms
  OwnedTensor q_projection_norm;  // [q_size]; empty view: none
  OwnedTensor k_projection_norm;  // [kv_size]
  NormLayer post_norm;            // an RMS norm of what is added to the residual; empty: none
  bool use_local_rope = false;    // DecoderOptions::local_rope
  bool has_rope = true;
  bool norms_after_rope = false;
  bool scales_q = false;  // DecoderOptions::q_scale
  float out_scale = 1;    // multiplies what the heads compute
  AttentionOptions options;
  OwnedTensor sinks, slopes;  // [own heads] of the options; empty view: none
};

// kScaledSiluAndMul: of a gate times gate_scale, the product times out_scale.
enum class Activation {
  kSiluAndMul,
  kGeluAndMul,
  kGelu,
  kErfGelu,
  kErfGeluAndMul,
  kRelu,
  kSquaredRelu,
  kScaledSiluAndMul
};

struct MlpLayer {
  // Gated: rows gate, up, not packed as gated for kErfGeluAndMul and kScaledSiluAndMul; else up.
  LinearLayer up;
  LinearLayer down;
  NormLayer post_norm;  // as AttentionLayer's
  Activation activation = Activation::kSiluAndMul;
  float gate_scale = 1, out_scale = 1;
};

// Which layer of the model to load.
struct LayerPlace {
  int64_t idx = 0;
  std::string prefix;                   // "model.layers.<idx>"
  std::string attention = "self_attn";  // what follows the prefix
};

// 1 / sqrt(dim)
float AttentionScale(double dim);
// Scores scaled by the root of head_dim; the layer's window.
AttentionOptions AttentionOptionsOf(const ModelConfig& config, int64_t layer_idx);

// The rank's rows of <prefix>.<attention>.{q,k,v}_proj. columns: of their input; 0: the hidden
// size.
std::array<StoredMatrix, 3> QkvBlocks(const LoadContext& context, const LayerPlace& place,
                                      int64_t columns = 0);
// The rank's rows of <prefix>.<attention>.o_proj.
StatusOr<LinearLayer> LoadOutProjection(const LoadContext& context, const LayerPlace& place,
                                        bool has_bias);
// Both. Biases are the config's unless they are given.
struct AttentionBiases {
  bool qkv = false;
  bool out = false;
};
StatusOr<AttentionLayer> LoadAttention(const LoadContext& context, const LayerPlace& place,
                                       AttentionBiases biases);
StatusOr<AttentionLayer> LoadAttention(const LoadContext& context, const LayerPlace& place);
// RMS norms over each head of q and k: <prefix>.self_attn.<name>.weight.
Status LoadHeadNorms(const LoadContext& context, const LayerPlace& place, const char* q_name,
                     const char* k_name, AttentionLayer* layer);
// LayerNorms without a bias, another one for each head: <prefix>.self_attn.{q,k}_norm.weight, a row
// for each head.
Status LoadNormsOfEachHead(const LoadContext& context, const LayerPlace& place,
                           AttentionLayer* layer);
// With RMS norms over all of q and all of k: <prefix>.self_attn.{q,k}_norm.weight.
StatusOr<AttentionLayer> LoadProjectionNormedAttention(const LoadContext& context,
                                                       const LayerPlace& place);
// The rank's numbers of a vector with one for each head.
StatusOr<OwnedTensor> LoadOfHeads(const LoadContext& context, const std::string& name);

// Merged rows stored in one matrix of another order: `runs` are runs of its rows, those of q, k and
// v one after another.
StatusOr<LinearLayer> LoadMergedQkv(const LoadContext& context, const std::string& name,
                                    bool has_bias, std::span<const Slice> runs);
// The runs of the rank, where each key-value head is stored as its query heads, its key and its
// value, one after another.
std::vector<Slice> RunsByKvHead(const LoadContext& context);

// <name> [rows, columns], the rank's rows.
StatusOr<LinearLayer> LoadRows(const LoadContext& context, const std::string& name, int64_t rows,
                               int64_t columns, bool has_bias);
// An MLP without a gate: <up>, the activation that hidden_act names, <down>. inner: numbers between
// them; 0: intermediate_size.
StatusOr<MlpLayer> LoadPlainMlp(const LoadContext& context, const std::string& up,
                                const std::string& down, bool has_bias, int64_t inner = 0);
// The rank's rows of <prefix>.mlp.{gate,up}_proj and of down_proj.
StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const LayerPlace& place);
// The rank's rows of <module>.{gate,up,down}_proj, of `inner` numbers between them.
StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const std::string& module,
                                int64_t inner);
// The same with both stored as one matrix <gate_up> [2 inner, H], gate first.
StatusOr<MlpLayer> LoadMergedMlp(const LoadContext& context, const std::string& gate_up,
                                 const std::string& down, int64_t inner);
// The same with gate and up stored in another way.
StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const LayerPlace& place,
                                std::span<const StoredMatrix> gate_up);

}  // namespace tandem
