// The tower of Gemma 3: SigLIP over an image of a fixed size, whose patches are pooled to a few
// rows, normed and projected to the text model's size.
// Source: Gemma Team 2025; Zhai et al. 2023; HF's SiglipVisionModel and Gemma3MultiModalProjector.

#include <memory>
#include <utility>

#include "engine_core/models/patch_pool.h"
#include "engine_core/models/vision_layers.h"
#include "engine_core/models/vision_tower.h"

namespace tandem {
namespace {

class SiglipTower final : public VisionTower {
 public:
  static StatusOr<std::unique_ptr<VisionTower>> Load(const LoadContext& context);

  Status Check(const ImagePatches& image) const override;
  int64_t NumTokens(const ImagePatches& /*image*/) const override {
    return config_.tokens_per_image;
  }
  int64_t num_columns() const override { return projection_.weight->n(); }
  StatusOr<TowerWork> Begin(const ImagePatches& image, const Tensor& out) override;

 private:
  SiglipTower(const LoadContext& context, const TowerShape& shape)
      : backend_(&context.backend), config_(context.config.vision), shape_(shape) {}

  Status LoadLayers(const LoadContext& context);
  Status LoadProjection(const LoadContext& context);
  // x: [P, H] res.
  Status Project(const Tensor& x, const Tensor& out) const;

  int64_t side() const { return config_.image_size / config_.patch_size; }  // in patches

  Backend* backend_;
  VisionConfig config_;
  TowerShape shape_;
  LinearLayer patch_projection_;
  OwnedTensor positions_;  // [P, H] f32
  std::vector<TowerLayer> layers_;
  NormLayer last_norm_;
  OwnedTensor pooled_norm_;  // [H], plus 1
  LinearLayer projection_;
};

// The prefix of these under which the checkpoint has the tensor; the first if it has none.
std::string PrefixOf(const Weights& weights, std::initializer_list<const char*> prefixes,
                     const char* name) {
  for (const char* prefix : prefixes) {
    if (weights.Has(std::string(prefix) + name)) return prefix;
  }
  return *prefixes.begin();
}

// A window smaller than an image would hide parts of it from its tokens.
Status CheckWindows(const ModelConfig& config) {
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (config.WindowOf(i) == 0 || config.WindowOf(i) >= config.vision.tokens_per_image) continue;
    return UnimplementedError("sliding_window " + std::to_string(config.WindowOf(i)) +
                              " below mm_tokens_per_image " +
                              std::to_string(config.vision.tokens_per_image) + " is not built");
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<VisionTower>> SiglipTower::Load(const LoadContext& context) {
  const VisionConfig& config = context.config.vision;
  ASSIGN_OR_RETURN(const Activation activation, UngatedActivation(config));
  RETURN_IF_ERROR(CheckWindows(context.config));
  const TowerShape shape = {.hidden = config.hidden_size,
                            .inner = config.intermediate_size,
                            .num_heads = config.num_heads,
                            .norm_epsilon = static_cast<float>(config.norm_epsilon),
                            .activation = activation};
  auto tower = std::unique_ptr<SiglipTower>(new SiglipTower(context, shape));
  RETURN_IF_ERROR(tower->LoadLayers(context));
  RETURN_IF_ERROR(tower->LoadProjection(context));
  return std::unique_ptr<VisionTower>(std::move(tower));
}

Status SiglipTower::LoadLayers(const LoadContext& context) {
  const int64_t hidden = config_.hidden_size, num_patches = side() * side();
  const std::string prefix = PrefixOf(context.weights,
                                      {"vision_tower.vision_model.", "vision_tower.",
                                       "model.vision_tower.vision_model.", "model.vision_tower."},
                                      "post_layernorm.weight");
  ASSIGN_OR_RETURN(patch_projection_,
                   LoadPatchProjection(context, prefix + "embeddings.patch_embedding", hidden,
                                       {3, config_.patch_size, config_.patch_size},
                                       /*has_bias=*/true));
  ASSIGN_OR_RETURN(positions_, LoadTable(context, prefix + "embeddings.position_embedding.weight",
                                         num_patches, hidden));
  const TowerLayerNames names = {
      .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
      .out = "self_attn.out_proj",
      .up = {"mlp.fc1"},
      .down = "mlp.fc2",
      .norm1 = "layer_norm1",
      .norm2 = "layer_norm2"};
  ASSIGN_OR_RETURN(layers_, LoadTowerLayers(context, shape_, prefix + "encoder.layers.", names));
  ASSIGN_OR_RETURN(last_norm_, LoadTowerNorm(context, prefix + "post_layernorm", hidden));
  return OkStatus();
}

Status SiglipTower::LoadProjection(const LoadContext& context) {
  const std::string prefix =
      PrefixOf(context.weights, {"multi_modal_projector.", "model.multi_modal_projector."},
               "mm_input_projection_weight");
  ASSIGN_OR_RETURN(pooled_norm_,
                   LoadVector(context, prefix + "mm_soft_emb_norm.weight", config_.hidden_size, 1));
  ASSIGN_OR_RETURN(projection_, LoadTransposed(context, prefix + "mm_input_projection_weight",
                                               context.config.hidden_size, config_.hidden_size));
  return OkStatus();
}

Status SiglipTower::Check(const ImagePatches& image) const {
  const Tensor& pixels = image.pixels;
  if (pixels.dtype == DType::kF32 && pixels.rank == 4 && pixels.IsContiguous() &&
      pixels.shape == std::array<int64_t, 4>{1, 3, config_.image_size, config_.image_size}) {
    return OkStatus();
  }
  const std::string side = std::to_string(config_.image_size);
  return InvalidArgumentError("an image's pixel_values must be float32[1, 3, " + side + ", " +
                              side + "]");
}

StatusOr<TowerWork> SiglipTower::Begin(const ImagePatches& image, const Tensor& out) {
  RETURN_IF_ERROR(Check(image));
  const int64_t patches[] = {side() * side()};
  const auto pixels =
      std::make_shared<std::vector<float>>(CutPatches(image.pixels, config_.patch_size));
  ASSIGN_OR_RETURN(const auto all, TowerWindows::Create(backend_, config_, patches));
  ASSIGN_OR_RETURN(const std::shared_ptr<TowerRun> run,
                   TowerRun::Create(backend_, shape_, patches[0], all->num_blocks(), {}));
  const auto residual = [run, pixels] { return run->residual(); };
  TowerWork work(backend_->device());
  run->AddEmbedding(Tensor(pixels->data(), DType::kF32, {patches[0], config_.patch_numbers()}),
                    patch_projection_, &work);
  const auto add_positions = [this, residual](int64_t /*begin*/, int64_t /*count*/) {
    backend_->ops().Add(residual(), positions_);
    return OkStatus();
  };
  const auto hidden = static_cast<double>(config_.hidden_size);
  work.AddRuns({patches[0]}, hidden, add_positions);
  AddReport("vit_embeddings", residual, &work);
  for (size_t i = 0; i < layers_.size(); ++i) {
    run->AddLayer(layers_[i], all, &work);
    if (i == 0) AddReport("vit_block0", residual, &work);
  }
  const auto project = [this, residual, out](int64_t /*begin*/, int64_t /*count*/) {
    return Project(residual(), out);
  };
  work.AddRuns({out.rows()}, hidden * static_cast<double>(num_columns()), project);
  return work;
}

Status SiglipTower::Project(const Tensor& x, const Tensor& out) const {
  Device& device = backend_->device();
  Ops& ops = backend_->ops();
  const int64_t hidden = config_.hidden_size;
  ASSIGN_OR_RETURN(const OwnedTensor last, device.Allocate(DType::kF32, {x.rows(), hidden}));
  TowerNorm(&ops, last, x, last_norm_, shape_.norm_epsilon);
  Report("vit_last", last);
  std::vector<int32_t> patches = PatchesOfPooled(x.rows(), out.rows());
  const int64_t of_one = x.rows() / out.rows();
  std::vector<float> shares(patches.size(), 1 / static_cast<float>(of_one));
  ASSIGN_OR_RETURN(const OwnedTensor rows,
                   ForOps(&device, Tensor(patches.data(), DType::kI32, {out.rows(), of_one})));
  ASSIGN_OR_RETURN(const OwnedTensor weights,
                   ForOps(&device, Tensor(shares.data(), DType::kF32, {out.rows(), of_one})));
  ASSIGN_OR_RETURN(const OwnedTensor pooled,
                   device.Allocate(backend_->residual_dtype(), {out.rows(), hidden}));  // zeros
  ops.AddWeightedRows(pooled, last, rows, weights);
  ASSIGN_OR_RETURN(const OwnedTensor normed,
                   device.Allocate(backend_->activation_dtype(), {out.rows(), hidden}));
  ops.RmsNorm(normed, pooled, pooled_norm_, shape_.norm_epsilon);
  ops.Linear(out, normed, *projection_.weight);
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<VisionTower>> LoadSiglipTower(const LoadContext& context) {
  return SiglipTower::Load(context);
}

}  // namespace tandem
