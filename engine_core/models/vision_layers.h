#pragma once

// What vision towers share: transformer layers over the patches of one image, in which every patch
// sees all others, or those of its window. Their attention is the text models', with keys in blocks
// of a cache that lives as long as the image runs: a window is a request, an image without windows
// is one.
// Thread: engine loop. Owns: layers their packed weights, in the compute type whatever the text
// model's format is; a run its buffers.
// Shapes: P patches, H hidden, D size of a head.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_core/models/layers.h"

namespace tandem {

// Names of a layer's tensors, after its prefix.
struct TowerLayerNames {
  std::vector<std::string> qkv;  // one merged matrix, or three
  std::string out;
  std::vector<std::string> up;  // gate and up where it is gated
  std::string down;
  std::string norm1, norm2;
};

struct TowerShape {
  int64_t hidden = 0, inner = 0, num_heads = 0;
  float norm_epsilon = 1e-6f;
  bool has_rms_norm = false;  // else a LayerNorm
  Activation activation = Activation::kGelu;
};

struct TowerLayer {
  NormLayer norm1, norm2;
  LinearLayer qkv, out, up, down;
};

// Of the first name's blocks, with a bias.
StatusOr<LinearLayer> LoadTowerLinear(const LoadContext& context,
                                      const std::vector<std::string>& names, int64_t rows,
                                      int64_t columns, bool is_gated = false);
StatusOr<NormLayer> LoadTowerNorm(const LoadContext& context, const std::string& name, int64_t size,
                                  bool has_rms_norm = false);
// prefix: what comes before a layer's number.
StatusOr<std::vector<TowerLayer>> LoadTowerLayers(const LoadContext& context,
                                                  const TowerShape& shape,
                                                  const std::string& prefix,
                                                  const TowerLayerNames& names);
// A matrix stored with more dimensions, [rows, ...] of `columns` numbers each.
StatusOr<LinearLayer> LoadPatchProjection(const LoadContext& context, const std::string& name,
                                          int64_t rows, const std::vector<int64_t>& dimensions,
                                          bool has_bias);
// A matrix that is stored as [columns, rows] under this name alone.
StatusOr<LinearLayer> LoadTransposed(const LoadContext& context, const std::string& name,
                                     int64_t rows, int64_t columns);
// A table [rows, columns] as float32.
StatusOr<OwnedTensor> LoadTable(const LoadContext& context, const std::string& name, int64_t rows,
                                int64_t columns);
// The activation of an MLP without a gate. UNIMPLEMENTED: config.json names another one.
StatusOr<Activation> UngatedActivation(const VisionConfig& config);

// Runs of patches that see each other; together they are all patches.
class TowerWindows {
 public:
  // ends: where each run ends, rising.
  static StatusOr<TowerWindows> Create(Backend* backend, const TowerShape& shape,
                                       std::span<const int64_t> ends);
  int64_t num_blocks() const { return num_blocks_; }
  const AttentionPlan& plan() const { return *plan_; }

 private:
  int64_t num_blocks_ = 0;
  std::vector<int32_t> query_start_, context_len_;
  OwnedTensor positions_, slots_, blocks_;
  std::unique_ptr<AttentionPlan> plan_;
};

// One image on its way through a tower.
class TowerRun {
 public:
  // num_blocks: the most of the windows that will be run. cos, sin: [P, D / 2] f32, host; empty:
  // nothing turns.
  static StatusOr<TowerRun> Create(Backend* backend, const TowerShape& shape, int64_t num_patches,
                                   int64_t num_blocks, const Tensor& cos, const Tensor& sin);

  // The hidden states.  [P, H] res.
  const Tensor& residual() const { return residual_.view(); }
  // residual = projection(pixels).  pixels: [P, n] f32, host.
  Status Embed(const Tensor& pixels, const LinearLayer& projection);
  // residual[i] = the former residual[rows[i]].  rows: [P] i32, each once.
  Status Reorder(const Tensor& rows);
  void RunLayer(const TowerLayer& layer, const TowerWindows& windows);

 private:
  TowerRun(Backend* backend, const TowerShape& shape, const Tensor& cos, const Tensor& sin)
      : backend_(backend), shape_(shape), cos_(cos), sin_(sin) {}

  Backend* backend_;
  TowerShape shape_;
  Tensor cos_, sin_;
  OwnedTensor residual_;            // [P, H] res
  OwnedTensor qkv_, q_, attended_;  // [P, 3 H], [P, H], [P, H] act
  OwnedTensor normed_;              // [rows at once, H] act
  OwnedTensor inner_;               // [rows at once, inner] act
  std::unique_ptr<KvCache> keys_;
};

// out = norm(x) by the shape's kind of norm.
void TowerNorm(Ops* ops, const Tensor& out, const Tensor& x, const NormLayer& norm, float epsilon);

}  // namespace tandem
