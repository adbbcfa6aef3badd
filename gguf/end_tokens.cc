#include "gguf/end_tokens.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace tandem {
namespace {

constexpr std::string_view kTurnEnds[] = {"<|eot_id|>",    "<|im_end|>", "<|end|>", "<end_of_turn>",
                                          "<|endoftext|>", "<|eom_id|>", "<turn|>"};
constexpr int64_t kControl = 3;  // of tokenizer.ggml.token_type

}  // namespace

StatusOr<std::optional<TokenId>> GgufTokenId(const GgufMetadata& metadata, std::string_view name,
                                             size_t num_tokens) {
  constexpr int64_t kNone = -1;
  const std::string key = "tokenizer.ggml." + std::string(name) + "_token_id";
  ASSIGN_OR_RETURN(const int64_t id, metadata.Integer(key, kNone));
  if (id == kNone || id == UINT32_MAX) return std::optional<TokenId>();
  if (id < 0 || id >= static_cast<int64_t>(num_tokens)) {
    return InvalidArgumentError(key + " is " + std::to_string(id) + ", there are " +
                                std::to_string(num_tokens) + " tokens");
  }
  return std::optional(static_cast<TokenId>(id));
}

StatusOr<std::vector<TokenId>> GgufEndTokens(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const auto tokens, metadata.Strings("tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(const auto types, metadata.Integers("tokenizer.ggml.token_type"));
  std::vector<TokenId> ids;
  const auto add = [&ids](TokenId token) {
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  };
  bool has_turn_end = false;
  for (const std::string_view name : {"eos", "eot", "eom"}) {
    ASSIGN_OR_RETURN(const auto id, GgufTokenId(metadata, name, tokens.size()));
    if (!id) continue;
    add(*id);
    if (name == "eot") has_turn_end = true;
  }
  if (has_turn_end) return ids;
  for (size_t id = 0; id < std::min(tokens.size(), types.size()); ++id) {
    if (types[id] != kControl) continue;
    if (std::find(std::begin(kTurnEnds), std::end(kTurnEnds), tokens[id]) != std::end(kTurnEnds)) {
      add(static_cast<TokenId>(id));
    }
  }
  return ids;
}

}  // namespace tandem
