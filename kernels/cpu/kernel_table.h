#pragma once

// The CPU kernels as the ops call them: one table of plain functions per instruction set, each
// filled by an isa_*.cc that is compiled with its own flags. The ops check shapes, split work and
// own memory; kernels compute on raw pointers and may run on any thread, on disjoint outputs.
//
// A "unit" is the 4 bytes that one multiply step takes from a vector lane: one float32, two
// consecutive bf16 (k, k + 1) or four int8. k_step is 1, 2 or 4 numbers of K per unit. Odd ends are
// padded with zero.

#include <cstdint>

#include "kernels/cpu/state_loops.h"
#include "kernels/kv_format.h"

namespace tandem {

struct CodedTask;  // coded_panel.h

inline constexpr int kPanelColumns = 64;  // output columns of a weight panel
inline constexpr int kTileTokens = 32;    // keys of a KV tile
inline constexpr int kStepTokens = 128;   // keys of one softmax step, aligned by position
inline constexpr int kMaxQueryRows = 48;  // (query, head) rows that share a pass over the keys
inline constexpr int kMaxHeadDim = 704;   // a latent of 576 and its index key of 128

// Most units of K walked before the next tile of rows: 256 KiB of a panel, which then stays in L2.
inline constexpr int64_t kBlockUnits = 1024;
// int4: a depth of less than one and a half blocks is unpacked at once.
inline constexpr int64_t kUnpackedUnits = kBlockUnits * 3 / 2 * kPanelColumns;
inline constexpr int kInt8Zero = 128;    // the unsigned byte of a panel for a weight of 0
inline constexpr int kPanelsAtOnce = 4;  // panels that pass over a block of rows and K together

struct BlockTask;  // block_panel.h

enum class OutKind : uint8_t { kF32, kF32Add, kBf16 };

// kNone: a panel is 64 columns of the product. Otherwise it is 32 of the gate, then the 32 that the
// gate multiplies, and out has half as many columns.
enum class GateKind : uint8_t { kNone, kSilu, kGelu };

// As Nonlinearity of kernels/ops.h, in its order.
enum class ElementKind : uint8_t { kSilu, kTanhGelu, kErfGelu, kRelu, kSquaredRelu };

inline constexpr int kStripColumns = 16;  // columns of a panel that a vector holds

// 16 columns, as they come in the panels of a matrix, of the B of an adapter's pair: numbers of the
// compute type [count][16] for the ranks [first, first + count).
struct AdapterStrip {
  const void* weights = nullptr;
  int32_t first = 0;
  int32_t count = 0;
};

// What an adapter adds to a row: the sum over r of inputs[r] * B[:, r].
struct AdapterTerm {
  const AdapterStrip* strips = nullptr;  // of the matrix, by panel; null: nothing is added
  const float* inputs = nullptr;         // A x
};

// How a product takes its rows. A packed tile has room for tile_rows rows of units, each filled up
// with zeros to a multiple of unit_multiple. If that is 1: [units][tile_rows]. Otherwise, of the
// task's height of tiles: [units / unit_multiple][height][unit_multiple].
struct RowForm {
  int tile_rows = 0;      // most rows of a packed tile
  int direct_rows = 0;    // so many may be read as they lie, more only packed
  int unit_multiple = 1;  // of rows that are read as they lie, too
  int pass_rows = 0;      // most rows that share one pass over a panel
  int even_tiles = 0;     // up to so many tiles, more than one, are made an even number

  // Tiles of nearly equal height: a low one does little work per weight it loads.
  int64_t HeightOf(int64_t rows) const {
    int64_t tiles = (rows + tile_rows - 1) / tile_rows;
    if (tiles > 1 && tiles < even_tiles) tiles += tiles % 2;
    return (rows + tiles - 1) / tiles;
  }
  int64_t RowUnits(int64_t k_units) const {
    return (k_units + unit_multiple - 1) / unit_multiple * unit_multiple;
  }
};

// out[m, n] = a[m, :] . weight[n, :] + bias.  weight: panels [n / 64][k_units][64] of units.
// a, packed: tiles of tile_rows rows, the last may have fewer, as RowForm says.
// a, direct: row r at a + r * a_stride units.
//
// Integers: a product is (sum - kInt8Zero * row_sum) * (row_scale * column_scale). An int4 panel is
// its groups one after another, each 64 bytes factor | zero << 4 of the columns, then the codes
// [8 k][64][4 bytes]: low halves of the bytes for the first four k, high halves for the others. The
// last group may be shorter; k_units is even.
struct LinearTask {
  const uint32_t* weight = nullptr;
  int64_t first_panel = 0;  // whose units `weight` begins with; of compute types
  const uint32_t* a = nullptr;
  int64_t a_stride = 0;  // packed: units of a row, filled up
  bool packed = false;
  int64_t tile_rows = 0;
  int64_t m = 0;
  int64_t n = 0;  // columns of out
  int64_t k_units = 0;
  void* out = nullptr;
  int64_t out_stride = 0;  // elements
  OutKind out_kind = OutKind::kF32;
  GateKind gate = GateKind::kNone;
  const float* bias = nullptr;  // or null; [n], gated [2 n]
  // [m], added to the product and its bias; or null. Their weights are float32, else bf16.
  const AdapterTerm* terms = nullptr;
  bool terms_are_f32 = false;

  const float* column_scale = nullptr;  // [n]
  const float* row_scale = nullptr;     // [m]
  const int32_t* row_sum = nullptr;     // [m], of the row's int8
  int64_t group_steps = 0;              // int4: 8 k each, per group
};

// A of an adapter's pair lies as it is read: 16 columns of four ranks, rank after rank, then the
// next 16; ranks beyond the last four are alone. So the reader follows one stream, where rows of A
// would be as many, each on pages of its own. k is filled up with zeros.
inline constexpr int kRanksTogether = 4;
constexpr int64_t PaddedColumns(int64_t k) {
  return (k + kStripColumns - 1) / kStripColumns * kStripColumns;
}

// sums[r][i] = a[i, :] . rows[r] for i in [begin, end), begin a multiple of kRanksTogether, and end
// too unless it is the last rank's. a, rows: the compute type.
struct AdapterInputsTask {
  const void* a = nullptr;
  int64_t k = 0;
  int64_t begin = 0;
  int64_t end = 0;
  const void* const* rows = nullptr;
  float* const* sums = nullptr;
  int64_t num_rows = 0;
};

// Ops::RouteTopK: its RouteOptions.
struct RouteTask {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  bool is_sigmoid = false;
  bool renormalize = false;
  float scale = 1;
  const float* bias = nullptr;  // or null
  int num_groups = 1;
  int top_groups = 1;
  int group_best = 1;
  bool is_sparse_mixer = false;
  float jitter = 0;
  const float* expert_scale = nullptr;  // or null
};

struct RopeTask {
  const void* qkv = nullptr;
  int64_t qkv_stride = 0;  // elements
  bool qkv_is_f32 = false;
  void* out = nullptr;
  int64_t out_stride = 0;
  void* k = nullptr;  // the layer's cache
  void* v = nullptr;
  KvFormat kv_format = KvFormat::kCompute;
  float k_scale = 1, v_scale = 1;  // of float8
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int padded_dim = 0;  // head_dim up to a multiple of 16
  const float* cos = nullptr;
  const float* sin = nullptr;
  int rotary_dim = 0;
  const float* q_norm = nullptr;  // or null
  const float* k_norm = nullptr;
  float epsilon = 0;
  bool norms_after_rope = false;
  bool is_interleaved = false;
  const float* q_scale = nullptr;  // or null
  bool is_of_q_alone = false;
  const int32_t* positions = nullptr;
  const int32_t* slots = nullptr;
};

// Ops::LatentRopeWriteKv. Types as in RopeTask.
struct LatentTask {
  const void* q = nullptr;
  int64_t q_stride = 0;  // elements
  int q_dim = 0;         // of a head
  const void* latent = nullptr;
  int64_t latent_stride = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
  int num_heads = 0;
  int pe_dim = 0;
  bool is_interleaved = true;
  const void* index_key = nullptr;  // or null
  int64_t index_key_stride = 0;
  int index_dim = 0;
  RopeTask key;  // of the cache, the angles and the norm, which is k_norm; one KV head
};

// The KV cache of a layer, as units. K tile of a head: [padded_dim / k_step][32]; V tile:
// [32 / k_step][padded_dim]. Tile j of block b, head h: ((b * tiles_per_block + j) * heads + h).
// int8: each number is a byte; the scales of the tile's tokens follow them. float8: each number is
// a byte. int4: Int4TileBytes. Latent: a K tile is the V tile, too, once its numbers stand in the
// other order.
struct AttentionTask {
  const void* q = nullptr;
  int64_t q_stride = 0;  // elements
  void* out = nullptr;
  int64_t out_stride = 0;
  const void* k = nullptr;
  const void* v = nullptr;
  KvFormat kv_format = KvFormat::kCompute;
  float k_scale = 1, v_scale = 1;  // of float8
  bool is_latent = false;
  int num_heads = 0;
  int num_kv_heads = 0;
  int heads_at_once = 0;  // divides the query heads of a KV head
  int head_dim = 0;
  int padded_dim = 0;
  int tiles_per_block = 0;
  float scale = 0;
  int window = 0;
  float soft_cap = 0;
  int chunk = 0;
  const float* sinks = nullptr;   // or null
  const float* slopes = nullptr;  // or null
  bool is_bidirectional = false;
  const int32_t* last_seen = nullptr;  // by token, or null
};

// Consecutive queries of one request, for heads_at_once query heads.
struct AttentionItem {
  const int32_t* blocks = nullptr;
  int32_t first_token = 0;     // row of q and out
  int32_t num_queries = 0;     // times heads_at_once <= kMaxQueryRows
  int32_t first_position = 0;  // of the first query
  int32_t context_len = 0;     // keys of the request
};

// The index of a layer's tokens. Its key of each token is numbers of the K tiles of the cache.
struct IndexTask {
  const void* k = nullptr;  // at the index's first number of the first tile
  int64_t tile_units = 0;
  int tiles_per_block = 0;
  int num_heads = 0;
  int dim = 0;
  float scale = 0;  // of q . k
};

// Kernels of one compute type. x and out types: `act` is that type. Strides are in elements.
struct TypedKernels {
  int k_step;

  RowForm rows;  // of `linear`

  // Copies rows of x [rows, k] into one packed tile of that height.
  void (*pack_rows)(const void* x, int64_t stride, int64_t rows, int64_t k, int64_t height,
                    uint32_t* tile);
  // The same as int8 for KernelTable::linear_int8, with each row's scale and sum; k_units may be
  // more than k fills. height 0: a row's units lie side by side.
  void (*quantize_rows)(const void* x, int64_t stride, int64_t rows, int64_t k, int64_t k_units,
                        int64_t height, uint32_t* units, float* scales, int32_t* sums);
  // A row as int8 in blocks of 32, with each block's scale and the sums of its halves.
  void (*quantize_blocks)(const void* x, int64_t num_groups, uint32_t* units, float* scales,
                          int32_t* sums);
  // The columns of panels [panel_begin, panel_end) for rows [row_begin, row_end), row_begin a
  // multiple of tile_rows. partial: room for 64 * kPanelsAtOnce floats per row of whole tiles.
  void (*linear)(const LinearTask& task, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                 int64_t panel_end, float* partial);

  // The units of a panel of codes, [k_units][64].
  void (*decode_panel)(const CodedTask& task, uint32_t* units);

  void (*adapter_inputs)(const AdapterInputsTask& task);
  // out += scale * the term, over `size` columns in the order of an ungated matrix.
  void (*add_adapter_term)(float* out, const AdapterTerm& term, float scale, int64_t size);

  void (*rms_norm)(const void* x, bool x_is_f32, const float* weight, float epsilon, int64_t size,
                   void* out, bool out_is_f32);
  void (*add)(float* residual, const void* x, bool x_is_f32, int64_t size);
  // residual += scale * x
  void (*add_scaled)(float* residual, const void* x, bool x_is_f32, float scale, int64_t size);
  void (*silu_and_mul)(const void* gate, const void* up, bool is_f32, int64_t size, void* out);
  void (*gelu_and_mul)(const void* gate, const void* up, bool is_f32, int64_t size, void* out);
  void (*erf_gelu_and_mul)(const void* gate, const void* up, bool is_f32, int64_t size, void* out);
  void (*clamped_silu_and_mul)(const void* gate, const void* up, bool is_f32, float limit,
                               int64_t size, void* out);
  void (*activate)(const void* x, bool is_f32, ElementKind kind, int64_t size, void* out);
  void (*scale)(void* x, float factor, int64_t size);
  void (*layer_norm)(const void* x, bool x_is_f32, const float* weight, const float* bias,
                     float epsilon, int64_t size, void* out, bool out_is_f32);
  void (*rope)(const RopeTask& task, int64_t token, int kv_head);
  void (*latent_rope)(const LatentTask& task, int64_t token);
  // For the query heads [part * heads_at_once, (part + 1) * heads_at_once).
  // scratch: AttentionScratchFloats(rows, padded_dim) floats, 64-byte aligned.
  void (*attention)(const AttentionTask& task, const AttentionItem& item, int part, float* scratch);
  // The scores of one token (SelectKeys of ops.def) with the first num_keys keys of its request.
  // q, weights: the token's. scores: has room for whole tiles.
  void (*index_scores)(const IndexTask& task, const void* q, const void* weights,
                       const int32_t* blocks, int64_t num_keys, float* scores);
};

struct KernelTable {
  TypedKernels bf16;
  TypedKernels f32;
  // As TypedKernels::linear. For linear_int4 room for kUnpackedUnits units follows `partial`.
  RowForm int8_rows;
  RowForm int4_rows;
  void (*linear_int8)(const LinearTask& task, int64_t row_begin, int64_t row_end,
                      int64_t panel_begin, int64_t panel_end, float* partial);
  void (*linear_int4)(const LinearTask& task, int64_t row_begin, int64_t row_end,
                      int64_t panel_begin, int64_t panel_end, float* partial);
  // The same for matrices in blocks; partial: BlockRoom of the rows.
  void (*linear_blocks)(const BlockTask& task, int64_t row_begin, int64_t row_end,
                        int64_t panel_begin, int64_t panel_end, float* partial);
  // Of one row; scratch: 2 num_experts + num_groups floats.
  void (*route_top_k)(const RouteTask& task, const float* logits, float* scratch,
                      int32_t* expert_ids, float* weights);
  void (*soft_cap)(float* x, float cap, int64_t size);
  // Tokens of a K tile side by side in another one, of which `to` is the place of the first: unit u
  // of token i is to[u * kTileTokens + i]. tokens: kStripColumns numbers below kTileTokens, of
  // which count are used.
  void (*take_tokens)(const uint32_t* tile, const uint32_t* tokens, int64_t count, int64_t units,
                      uint32_t* to);
  StateKernels state;
};

const KernelTable& ScalarKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Bf16Kernels();
const KernelTable& AmxKernels();

constexpr int64_t Float8TileBytes(int64_t padded_dim) { return kTileTokens * padded_dim; }

constexpr int64_t Int8TileBytes(int64_t padded_dim) {
  return kTileTokens * (padded_dim + int64_t{sizeof(float)});
}

// An int4 tile. Two codes of one token are a byte, so that tokens can be written side by side.
// K: [head / 2][32 tokens], the numbers 2 i and 2 i + 1 in row i. V: [32 tokens][head / 2], of a
// group the numbers i and i + 16. Then [groups][32 tokens] words: bits of step below those of base.
constexpr int64_t Int4NumGroups(int64_t padded_dim) {
  return (padded_dim + kInt4Group - 1) / kInt4Group;
}
constexpr int64_t Int4TokenBytes(int64_t padded_dim) {  // of the codes of a token
  return Int4NumGroups(padded_dim) * kInt4Group / 2;
}
constexpr int64_t Int4TileBytes(int64_t padded_dim) {
  return kTileTokens *
         (Int4TokenBytes(padded_dim) + Int4NumGroups(padded_dim) * int64_t{sizeof(uint32_t)});
}

// Per row: q (padded_dim), accumulator (padded_dim), scores and their weights (kStepTokens each),
// the running sums (16 lanes) and maximum (padded to 16). For a step: K and V of an int8 cache in
// the compute type, and their scales.
constexpr int64_t AttentionScratchFloats(int64_t rows, int64_t padded_dim) {
  return rows * (2 * padded_dim + 2 * kStepTokens + 32) + 2 * kStepTokens * (padded_dim + 1);
}

}  // namespace tandem
