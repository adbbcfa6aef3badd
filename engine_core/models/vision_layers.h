#pragma once

// What vision towers share: transformer layers over the patches of one image, in which every patch
// sees all others, or those of its window. Their attention is the text models', with keys in blocks
// of a cache that lives as long as the image runs: a window is a request, an image without windows
// is one. What they do is added to the image's TowerWork.
// Thread: engine loop. Owns: layers their packed weights, in the compute type whatever the text
// model's format is; a run its buffers.
// Shapes: P patches, H hidden, D size of a head.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_core/models/layers.h"
#include "engine_core/models/tower_work.h"

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

// Of places: the cosine and sine of each pair's angle.  [P, D / 2]; empty: nothing turns.
struct PatchAngles {
  std::vector<float> cos, sin;
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
// Numbers of the host where ops read them; where the host's memory is the backend's, the same ones,
// which the caller keeps.
StatusOr<OwnedTensor> ForOps(Device* device, const Tensor& host);
// The activation of an MLP without a gate. UNIMPLEMENTED: config.json names another one.
StatusOr<Activation> UngatedActivation(const VisionConfig& config);

// Windows of patches that see each other; together they are all patches. They are computed in runs
// of rows, each a few windows or a part of one.
class TowerWindows {
 public:
  // ends: where each window ends, rising.
  static StatusOr<std::shared_ptr<const TowerWindows>> Create(Backend* backend,
                                                              const VisionConfig& config,
                                                              std::span<const int64_t> ends);
  int64_t num_blocks() const { return num_blocks_; }
  double row_work() const { return row_work_; }               // of a row in a layer
  const std::vector<int64_t>& ends() const { return ends_; }  // of the runs
  // Of the run that begins with this row.
  const AttentionPlan& PlanAt(int64_t begin) const;

 private:
  void Cut(double run_work, std::span<const int64_t> ends);
  Status MakePlan(Backend* backend, const AttentionShape& shape, int64_t begin, int64_t end,
                  std::span<const int64_t> ends);

  int64_t num_blocks_ = 0;
  double row_work_ = 0;
  std::vector<int64_t> ends_;
  OwnedTensor positions_, slots_, blocks_;             // [P], [P], [windows, most blocks of one]
  std::vector<std::unique_ptr<AttentionPlan>> plans_;  // of the runs
};

// One image on its way through a tower. What it adds to the work keeps it alive.
class TowerRun : public std::enable_shared_from_this<TowerRun> {
 public:
  // num_blocks: the most of the windows that will be run.
  static StatusOr<std::shared_ptr<TowerRun>> Create(Backend* backend, const TowerShape& shape,
                                                    int64_t num_patches, int64_t num_blocks,
                                                    PatchAngles angles);
  TowerRun(const TowerRun&) = delete;

  // The hidden states.  [P, H] res.
  const Tensor& residual() const { return residual_.view(); }
  // residual = projection(pixels).  pixels: [P, n] f32, host; they stay until the work is done.
  void AddEmbedding(const Tensor& pixels, const LinearLayer& projection, TowerWork* work);
  // residual[i] = the former residual[rows[i]].  rows: each once.
  void AddOrder(std::vector<int32_t> rows, TowerWork* work);
  // REQUIRES: the layer stays until the work is done.
  void AddLayer(const TowerLayer& layer, const std::shared_ptr<const TowerWindows>& windows,
                TowerWork* work);

 private:
  TowerRun(Backend* backend, const TowerShape& shape, PatchAngles angles)
      : backend_(backend), shape_(shape), angles_(std::move(angles)) {}

  Status Embed(const Tensor& pixels, const LinearLayer& projection, int64_t begin, int64_t count);
  Tensor Normed(const NormLayer& norm, int64_t begin, int64_t count);
  // q and the cache of these rows.
  void ProjectQkv(const TowerLayer& layer, const AttentionPlan& plan, int64_t begin, int64_t count);
  // The rest of the layer, once the cache has all rows.
  void Attend(const TowerLayer& layer, const AttentionPlan& plan, int64_t begin, int64_t count);
  void RunMlp(const TowerLayer& layer, int64_t begin, int64_t count);

  Backend* backend_;
  TowerShape shape_;
  PatchAngles angles_;
  OwnedTensor cos_, sin_;
  OwnedTensor residual_;        // [P, H] res
  OwnedTensor q_;               // [P, H] act
  OwnedTensor qkv_, attended_;  // [rows at once, 3 H], [rows at once, H] act
  OwnedTensor normed_, inner_;  // [rows at once, H], [rows at once, inner] act
  std::unique_ptr<KvCache> keys_;
};

// out = norm(x) by the shape's kind of norm.
void TowerNorm(Ops* ops, const Tensor& out, const Tensor& x, const NormLayer& norm, float epsilon);

}  // namespace tandem
