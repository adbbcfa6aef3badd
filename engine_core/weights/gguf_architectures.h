#pragma once

// The architectures of GGUF files: what each is called in Hugging Face's terms, how its tensors are
// named, and what llama.cpp's converter did to them. gguf_architectures.cc has a row for each.
// Pure; any thread.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/status.h"
#include "engine_core/weights/recurrent_config.h"
#include "gguf/gguf_file.h"

namespace tandem {

// A module below a layer, or a top-level one, in both spellings: {"mlp.up_proj", "ffn_up"}. Or a
// tensor, where their names end differently: {"self_attn.sinks", "attn_sinks.weight"}.
struct GgufModuleName {
  std::string_view hf, gguf;
  int half = -1;  // 0, 1: it is the first or second half of the other's rows
};

// A key, without the architecture before it, and config.json's name for it.
struct GgufKey {
  std::string_view gguf;
  const char* hf;
  bool is_number = false;  // else an integer
};

struct GgufArchitecture {
  std::string_view name;             // general.architecture
  std::string_view hf_name;          // config.json's architectures[0]
  std::string_view hf_mixture = {};  // the same where the file has experts
  // The same where the choice of experts has a bias; empty: as hf_mixture.
  std::string_view hf_biased_mixture = {};
  // Modules that are not called as in most architectures.
  std::span<const GgufModuleName> layer_names = {};
  // Rows of q and k are stored pair by pair, as llama.cpp rotates them: row 2 j + t of a head is
  // row j + t * head_dim / 2 of HF's.
  bool has_paired_rows = false;
  bool has_qkv_bias = false;  // biases of q, k and v alone, which its loader knows
  float norm_offset = 0;      // was added to the weights of norms
  bool has_latents = false;   // latent attention
  bool is_uneven = false;     // layers of two kinds, with heads and angles of their own sizes
  RecurrentKind states = RecurrentKind::kNone;
  std::span<const GgufKey> keys = {};  // beside those of all
  // A JSON object: keys of config.json that the file has no keys for.
  std::string_view config = "{}";
};

// Of the file's general.architecture. Unimplemented: an unknown one; the message has the known
// ones.
StatusOr<const GgufArchitecture*> FindGgufArchitecture(const GgufMetadata& metadata);

// Where the file has a tensor.
struct GgufTensorPlace {
  std::string name;
  std::optional<int64_t> index = {};  // its matrix of a stack, of all experts or heads
  int half = -1;                      // as in GgufModuleName
  bool is_paired = false;             // has_paired_rows, and this is q or k
  bool is_norm = false;
  bool is_decay = false;  // -exp of what HF has
};

// The place of a tensor by HF's name ("model.layers.0.mlp.up_proj.weight"); nullopt: no
// architecture has it. It need not be in the file.
std::optional<GgufTensorPlace> FindGgufPlace(const GgufArchitecture& architecture,
                                             std::string_view hf_name);

}  // namespace tandem
