#pragma once

// Medusa's heads: the i-th guesses the token i places after the newest from the state that made the
// newest, the target's last one after its final norm:
//   x = state;  x += silu(W x + b), num_layers times;  logits = head x
// Thread, ownership: as Model; borrows the target's head, which outlives it. One rank.
// Sources: Cai et al. 2024; both layouts of names in files, the authors' ("0.0.linear", "0.1") and
// vLLM's ("blocks.0.layers.0", "lm_heads.0").

#include <memory>
#include <string>
#include <vector>

#include "engine_core/models/model.h"

namespace tandem {

struct MedusaConfig {
  int64_t num_heads = 0;
  int64_t num_layers = 1;          // of each
  bool has_target_tables = false;  // its lm_head serves all heads
};

// config.json. INVALID_ARGUMENT names the key; a head that does not fit the target is one, too.
StatusOr<MedusaConfig> ReadMedusaConfig(const std::string& folder, const ModelConfig& target);
StatusOr<MedusaConfig> ParseMedusaConfig(const std::string& text, const ModelConfig& target);

class MedusaHeads {
 public:
  // context.config: the target's. Failure: a tensor that is missing or has another shape.
  static StatusOr<std::unique_ptr<MedusaHeads>> Load(const LoadContext& context,
                                                     const MedusaConfig& config,
                                                     const Model& target);

  int64_t num_heads() const { return static_cast<int64_t>(heads_.size()); }
  // logits[i, :] = of states[rows[i], :].  logits: [R, V] f32; states: [T, H] act; rows: [R] i32.
  void Logits(size_t head, const Tensor& logits, const Tensor& states, const Tensor& rows);

 private:
  struct Head {
    std::vector<LinearLayer> layers;  // [H, H] each
    LinearLayer own_table;            // [V, H]; null: the target's
  };

  MedusaHeads(Backend* backend, const Model& target)
      : ops_(&backend->ops()), target_table_(&target.head()) {}
  Status LoadHead(const LoadContext& context, const MedusaConfig& config, int64_t idx);
  Status Allocate(const LoadContext& context);

  Ops* ops_;
  const PackedMatrix* target_table_;
  std::vector<Head> heads_;
  OwnedTensor x_;         // [max_logits_rows, H] act
  OwnedTensor residual_;  // [max_logits_rows, H] res
  OwnedTensor gate_up_;   // [max_logits_rows, 2 H] f32; the second half is ones
};

}  // namespace tandem
