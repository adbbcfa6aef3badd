#pragma once

// Folders of EAGLE, MTP and Medusa heads made by a test: config.json and a file of random numbers,
// which are mostly wrong guesses. Thread: the test's own.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/files/adapter_folder.h"
#include "tests/support/files/temp_folder.h"

namespace tandem {

struct HeadShape {
  bool is_eagle3 = false;
  int64_t hidden_size = 0, vocab_size = 0;  // the target's
  int64_t draft_vocab_size = 0;             // of eagle3; below vocab_size: with d2t
  std::vector<int> state_layers = {0, 1};   // of eagle3
  bool has_own_tables = false;              // embedding, and eagle's head
  bool has_fc_bias = false;
};

std::string HeadConfigText(const HeadShape& shape);
std::vector<FileTensor> HeadTensors(const HeadShape& shape, uint64_t seed);
void WriteHead(const TempFolder& folder, const std::string& name, const HeadShape& shape,
               uint64_t seed);

// Medusa's heads, in the authors' layout or in vLLM's.
struct MedusaShape {
  int64_t hidden_size = 0, vocab_size = 0;  // the target's
  int64_t num_heads = 3, num_layers = 1;
  bool is_vllms = false;
  bool has_target_tables = false;  // and layers of zeros: each head guesses the newest token again
};
std::string MedusaConfigText(const MedusaShape& shape);
std::vector<FileTensor> MedusaTensors(const MedusaShape& shape, uint64_t seed);
void WriteMedusa(const TempFolder& folder, const std::string& name, const MedusaShape& shape,
                 uint64_t seed);

// A llama's sizes.
struct MtpShape {
  int64_t hidden_size = 0, inner_size = 0;
  int64_t q_size = 0, kv_size = 0;  // heads * head_dim
  int64_t num_layers = 0;           // before the one that is written
  int64_t gated_head_dim = 0;       // not 0: of Qwen3.5, with gates and norms of heads of this size
};

// The layer alone, without a config.
void WriteMtp(const TempFolder& folder, const std::string& name, const MtpShape& shape,
              uint64_t seed);

}  // namespace tandem
