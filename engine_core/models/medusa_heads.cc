#include "engine_core/models/medusa_heads.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/read_file.h"
#include "engine_core/weights/json_fields.h"
#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxHeads = 128, kMaxLayers = 8;

// The key of the authors' files, else vLLM's; none: `fallback`.
Status ReadEither(const Json& json, const char* key, const char* other, int64_t max,
                  int64_t fallback, int64_t* out) {
  return ReadSize(json, Find(json, key) != nullptr ? key : other, max, fallback, out);
}

// Keys that the authors' files lack are the target's.
Status CheckSize(const Json& json, const char* key, int64_t expected) {
  int64_t size = 0;
  RETURN_IF_ERROR(ReadSize(json, key, int64_t{1} << 31, expected, &size));
  if (size == expected) return OkStatus();
  return InvalidArgumentError(std::string(key) + " is " + std::to_string(size) + ", must be " +
                              std::to_string(expected) + ", the target's");
}

StatusOr<MedusaConfig> Parse(const std::string& text, const ModelConfig& target) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  MedusaConfig config;
  RETURN_IF_ERROR(
      ReadEither(json, "medusa_num_heads", "num_heads", kMaxHeads, -1, &config.num_heads));
  RETURN_IF_ERROR(ReadEither(json, "medusa_num_layers", "num_hidden_layers", kMaxLayers, 1,
                             &config.num_layers));
  RETURN_IF_ERROR(CheckSize(json, "hidden_size", target.hidden_size));
  RETURN_IF_ERROR(CheckSize(json, "vocab_size", target.vocab_size));
  RETURN_IF_ERROR(CheckSize(json, "truncated_vocab_size", target.vocab_size));
  RETURN_IF_ERROR(ReadBool(json, "original_lm_head", &config.has_target_tables));
  return config;
}

}  // namespace

StatusOr<MedusaConfig> ParseMedusaConfig(const std::string& text, const ModelConfig& target) {
  StatusOr<MedusaConfig> config = Parse(text, target);
  if (!config.ok()) return config.status().WithContext("config.json");
  return config;
}

StatusOr<MedusaConfig> ReadMedusaConfig(const std::string& folder, const ModelConfig& target) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(folder + "/config.json", kMaxJsonFileBytes));
  StatusOr<MedusaConfig> config = ParseMedusaConfig(text, target);
  if (!config.ok()) return config.status().WithContext(folder);
  return config;
}

StatusOr<std::unique_ptr<MedusaHeads>> MedusaHeads::Load(const LoadContext& context,
                                                         const MedusaConfig& config,
                                                         const Model& target) {
  std::unique_ptr<MedusaHeads> heads(new MedusaHeads(&context.backend, target));
  for (int64_t i = 0; i < config.num_heads; ++i) {
    RETURN_IF_ERROR(heads->LoadHead(context, config, i));
  }
  RETURN_IF_ERROR(heads->Allocate(context));
  return heads;
}

Status MedusaHeads::LoadHead(const LoadContext& context, const MedusaConfig& config, int64_t idx) {
  const int64_t hidden = context.config.hidden_size;
  const std::string number = std::to_string(idx);
  const bool has_blocks = context.weights.Has("blocks.0.layers.0.weight");
  Head& head = heads_.emplace_back();
  for (int64_t l = 0; l < config.num_layers; ++l) {
    const std::string layer = std::to_string(l);
    const StoredMatrix block[] = {{.name = has_blocks ? "blocks." + number + ".layers." + layer
                                                      : number + "." + layer + ".linear",
                                   .rows = hidden,
                                   .columns = hidden}};
    const LinearOptions options = {.has_bias = context.weights.Has(block[0].name + ".bias")};
    ASSIGN_OR_RETURN(LinearLayer linear, LoadLinear(context, block, options));
    head.layers.push_back(std::move(linear));
  }
  if (config.has_target_tables) return OkStatus();
  const StoredMatrix table[] = {
      {.name = has_blocks ? "lm_heads." + number : number + "." + std::to_string(config.num_layers),
       .rows = context.config.vocab_size,
       .columns = hidden}};
  const LinearOptions options = {.format = context.formats.embedding};
  ASSIGN_OR_RETURN(head.own_table, LoadLinear(context, table, options));
  return OkStatus();
}

Status MedusaHeads::Allocate(const LoadContext& context) {
  Backend& backend = context.backend;
  const int64_t rows = context.limits.max_logits_rows, hidden = context.config.hidden_size;
  ASSIGN_OR_RETURN(x_, backend.device().Allocate(backend.activation_dtype(), {rows, hidden}));
  ASSIGN_OR_RETURN(residual_, backend.device().Allocate(backend.residual_dtype(), {rows, hidden}));
  const std::vector<float> ones(static_cast<size_t>(rows * 2 * hidden), 1.0F);
  const Tensor view(const_cast<float*>(ones.data()), DType::kF32, {rows, 2 * hidden});
  ASSIGN_OR_RETURN(gate_up_, backend.device().Upload(view, DType::kF32));
  return OkStatus();
}

void MedusaHeads::Logits(size_t head, const Tensor& logits, const Tensor& states,
                         const Tensor& rows) {
  const int64_t count = rows.rows(), hidden = states.shape[1];
  const Tensor x = x_.view().Rows(0, count), residual = residual_.view().Rows(0, count);
  const Tensor gate_up = gate_up_.view().Rows(0, count);
  ops_->GatherRows(x, states, rows);
  ops_->Convert(residual, x);
  for (const LinearLayer& layer : heads_[head].layers) {
    ops_->Linear(gate_up.Columns(0, hidden), x, *layer.weight, layer.bias);
    ops_->SiluAndMul(x, gate_up);
    ops_->Add(residual, x);
    ops_->Convert(x, residual);
  }
  const LinearLayer& own = heads_[head].own_table;
  ops_->Linear(logits, x, own.weight == nullptr ? *target_table_ : *own.weight);
}

}  // namespace tandem
