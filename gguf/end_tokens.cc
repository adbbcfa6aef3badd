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

StatusOr<std::vector<TokenId>> GgufEndTokens(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const auto tokens, metadata.Strings("tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(const auto types, metadata.Integers("tokenizer.ggml.token_type"));
  std::vector<TokenId> ids;
  const auto add = [&ids](int64_t id) {
    const auto token = static_cast<TokenId>(id);
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  };
  for (const char* name : {"eos", "eot", "eom"}) {
    const std::string key = "tokenizer.ggml." + std::string(name) + "_token_id";
    if (!metadata.Has(key)) continue;
    ASSIGN_OR_RETURN(const int64_t id, metadata.Integer(key, 0));
    if (id < 0 || id >= static_cast<int64_t>(tokens.size())) {
      return InvalidArgumentError(key + " is " + std::to_string(id) + ", there are " +
                                  std::to_string(tokens.size()) + " tokens");
    }
    add(id);
  }
  if (metadata.Has("tokenizer.ggml.eot_token_id")) return ids;
  for (size_t id = 0; id < std::min(tokens.size(), types.size()); ++id) {
    if (types[id] != kControl) continue;
    if (std::find(std::begin(kTurnEnds), std::end(kTurnEnds), tokens[id]) != std::end(kTurnEnds)) {
      add(static_cast<int64_t>(id));
    }
  }
  return ids;
}

}  // namespace tandem
