#pragma once

// The CPU kernels as the backend sees them: one table of plain functions per instruction set, each
// filled by an isa_*.cc that is compiled with its own flags. The backend checks shapes, splits work
// and owns memory; kernels compute on raw pointers and may run on any thread, on disjoint outputs.
//
// A "unit" is the 4 bytes that one multiply step takes from a vector lane: one float32, or two
// consecutive bf16 (k, k + 1). k_step is 1 or 2 numbers of K per unit. Odd ends are padded with
// zero.

#include <cstdint>

namespace tandem {

inline constexpr int kPanelColumns = 64;  // output columns of a weight panel
inline constexpr int kTileTokens = 32;    // keys of a KV tile
inline constexpr int kStepTokens = 128;   // keys of one softmax step, aligned by position
inline constexpr int kMaxQueryRows = 48;  // (query, head) rows that share a pass over the keys

enum class OutKind : uint8_t { kF32, kF32Add, kBf16 };

// out[m, n] = a[m, :] . weight[n, :] + bias.  weight: panels [n / 64][k_units][64] of units.
// a, packed: tiles of tile_rows rows, each [k_units][rows of the tile]; the last tile may be lower.
// a, direct (m <= tile_rows): row r at a + r * a_stride units.
struct LinearTask {
  const uint32_t* weight = nullptr;
  const uint32_t* a = nullptr;
  int64_t a_stride = 0;
  bool packed = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k_units = 0;
  void* out = nullptr;
  int64_t out_stride = 0;  // elements
  OutKind out_kind = OutKind::kF32;
  const float* bias = nullptr;  // or null
};

struct RopeTask {
  const void* qkv = nullptr;
  int64_t qkv_stride = 0;  // elements
  bool qkv_is_f32 = false;
  void* out = nullptr;
  int64_t out_stride = 0;
  uint32_t* k = nullptr;  // the layer's cache
  uint32_t* v = nullptr;
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
  const int32_t* positions = nullptr;
  const int32_t* slots = nullptr;
};

// The KV cache of a layer, as units. K tile of a head: [padded_dim / k_step][32]; V tile:
// [32 / k_step][padded_dim]. Tile j of block b, head h: ((b * tiles_per_block + j) * heads + h).
struct AttentionTask {
  const void* q = nullptr;
  int64_t q_stride = 0;  // elements
  void* out = nullptr;
  int64_t out_stride = 0;
  const uint32_t* k = nullptr;
  const uint32_t* v = nullptr;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int padded_dim = 0;
  int tiles_per_block = 0;
  float scale = 0;
  int window = 0;
  float soft_cap = 0;
};

// Some consecutive queries of one request, for the query heads of one KV head.
struct AttentionItem {
  const int32_t* blocks = nullptr;
  int32_t first_token = 0;     // row of q and out
  int32_t num_queries = 0;     // times heads per KV head <= kMaxQueryRows, or 1
  int32_t first_position = 0;  // of the first query
  int32_t context_len = 0;     // keys of the request
};

// Kernels of one compute type. x and out types: `act` is that type. Strides are in elements.
struct TypedKernels {
  int k_step;

  // Copies rows [first_row, first_row + rows) of x [., k] into one packed tile.
  void (*pack_rows)(const void* x, int64_t stride, int64_t rows, int64_t k, uint32_t* tile);
  // The columns of panels [panel_begin, panel_end) for rows [row_begin, row_end), row_begin a
  // multiple of tile_rows. partial: room for (row_end - row_begin) * 64 floats when a is packed.
  void (*linear)(const LinearTask& task, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                 int64_t panel_end, float* partial);

  void (*rms_norm)(const void* x, bool x_is_f32, const float* weight, float epsilon, int64_t size,
                   void* out, bool out_is_f32);
  void (*add)(float* residual, const void* x, bool x_is_f32, int64_t size);
  // residual += scale * x
  void (*add_scaled)(float* residual, const void* x, bool x_is_f32, float scale, int64_t size);
  void (*silu_and_mul)(const void* gate, const void* up, bool is_f32, int64_t size, void* out);
  // up null: gelu alone.
  void (*gelu_and_mul)(const void* gate, const void* up, bool is_f32, int64_t size, void* out);
  void (*layer_norm)(const void* x, bool x_is_f32, const float* weight, const float* bias,
                     float epsilon, int64_t size, void* out, bool out_is_f32);
  void (*rope)(const RopeTask& task, int64_t token, int kv_head);
  // scratch: AttentionScratchFloats(rows, padded_dim) floats, 64-byte aligned.
  void (*attention)(const AttentionTask& task, const AttentionItem& item, int kv_head,
                    float* scratch);
};

struct KernelTable {
  const char* name;
  int tile_rows;
  TypedKernels bf16;
  TypedKernels f32;
  int64_t (*argmax)(const float* x, int64_t size);
  float (*log_sum_exp)(const float* x, int64_t size);
  // What Backend::RouteTopK does with a row; scratch: `size` floats.
  void (*route_top_k)(const float* logits, int64_t size, int64_t top_k, bool renormalize,
                      float* scratch, int32_t* expert_ids, float* weights);
  void (*soft_cap)(float* x, float cap, int64_t size);
};

const KernelTable& ScalarKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Bf16Kernels();

// Per row: q (padded_dim), accumulator (padded_dim), scores and their weights (kStepTokens each),
// the running sums (16 lanes) and maximum (padded to 16).
constexpr int64_t AttentionScratchFloats(int64_t rows, int64_t padded_dim) {
  return rows * (2 * padded_dim + 2 * kStepTokens + 32);
}

}  // namespace tandem
