#include "frontend/text/tekken_file.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "frontend/text/base64.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/ranked_tokens.h"
#include "frontend/text/token_model_file.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kMaxVocabSize = 1 << 24;

// Of files without a list of their own (versions up to 7).
constexpr const char* kOldSpecialTokens[] = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};

StatusOr<int64_t> ReadCount(const json& spec, const char* name, int64_t otherwise) {
  const json& value = Field(spec, name);
  if (value.is_null()) return otherwise;
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() > kMaxVocabSize) {
    return WrongType(name, value, "a count of tokens");
  }
  return value.get<int64_t>();
}

// The texts of special tokens by id, whose ranks must be 0, 1, 2 …
StatusOr<std::vector<std::string>> ReadSpecialTokens(const json& spec) {
  std::vector<std::string> texts;
  if (spec.is_null()) {
    texts.assign(std::begin(kOldSpecialTokens), std::end(kOldSpecialTokens));
    return texts;
  }
  if (!spec.is_array()) return WrongType("special_tokens", spec, "an array");
  texts.resize(spec.size());
  std::vector<bool> filled(spec.size());
  for (const json& item : spec) {
    ASSIGN_OR_RETURN(std::string text, StringField(item, "token_str", ""));
    ASSIGN_OR_RETURN(const TokenId rank, ToTokenId(Field(item, "rank"), text));
    const auto index = static_cast<size_t>(rank);
    if (index >= texts.size() || filled[index] || text.empty()) {
      return InvalidArgumentError("special_tokens must have the ranks 0 to " +
                                  std::to_string(texts.size() - 1) + ", each once, and texts");
    }
    filled[index] = true;
    texts[index] = std::move(text);
  }
  return texts;
}

std::vector<AddedToken> MakeSpecialTokens(const std::vector<std::string>& texts, int64_t count) {
  std::vector<AddedToken> tokens;
  for (int64_t id = 0; id < count; ++id) {
    const auto index = static_cast<size_t>(id);
    tokens.push_back(
        {.id = static_cast<TokenId>(id),
         .content = index < texts.size() ? texts[index] : "<SPECIAL_" + std::to_string(id) + ">",
         .normalized = false,
         .special = true});
  }
  return tokens;
}

// The first `count` entries; a file may list more than the model has.
StatusOr<TokenList> ReadRanks(const json& spec, int64_t first_id, int64_t count) {
  if (!spec.is_array()) return WrongType("vocab", spec, "an array");
  TokenList tokens;
  std::set<std::string, std::less<>> texts;
  for (const json& item : spec) {
    const auto rank = static_cast<int64_t>(tokens.size());
    if (rank == count) break;
    const std::string place = "vocab[" + std::to_string(rank) + "]";
    const json& given = Field(item, "rank");
    if (!given.is_number_integer() || given.get<int64_t>() != rank) {
      return InvalidArgumentError(place + " must have the rank " + std::to_string(rank));
    }
    ASSIGN_OR_RETURN(const std::string text, StringField(item, "token_bytes", ""));
    auto bytes = Base64Decode(text);
    if (!bytes || bytes->empty()) {
      return InvalidArgumentError("token_bytes of " + place + " is not base64");
    }
    if (!texts.insert(*bytes).second) return InvalidArgumentError(place + " occurs twice");
    tokens.emplace_back(static_cast<TokenId>(first_id + rank), *std::move(bytes));
  }
  return tokens;
}

}  // namespace

StatusOr<std::unique_ptr<TokenizerFile>> ParseTekkenFile(std::string_view bytes,
                                                         TokenizerConfig* config) {
  const json root = json::parse(bytes, nullptr, false);
  if (!root.is_object()) return InvalidArgumentError("not a JSON object");
  const json& settings = Field(root, "config");
  ASSIGN_OR_RETURN(const std::string pattern, StringField(settings, "pattern", ""));
  if (pattern.empty()) return InvalidArgumentError("config has no pattern");
  ASSIGN_OR_RETURN(const auto special, ReadSpecialTokens(Field(root, "special_tokens")));
  ASSIGN_OR_RETURN(const int64_t num_special, ReadCount(settings, "default_num_special_tokens",
                                                        static_cast<int64_t>(special.size())));
  ASSIGN_OR_RETURN(const int64_t vocab_size,
                   ReadCount(settings, "default_vocab_size", kMaxVocabSize));
  if (num_special < static_cast<int64_t>(special.size()) || vocab_size < num_special) {
    return InvalidArgumentError("default_num_special_tokens is " + std::to_string(num_special) +
                                ", there are " + std::to_string(special.size()) +
                                " special tokens and " + std::to_string(vocab_size) +
                                " tokens in all");
  }
  ASSIGN_OR_RETURN(TokenList ranks,
                   ReadRanks(Field(root, "vocab"), num_special, vocab_size - num_special));
  ASSIGN_OR_RETURN(auto file,
                   MakeRankedTokenizer({.tokens = std::move(ranks),
                                        .pattern = pattern,
                                        .added_tokens = MakeSpecialTokens(special, num_special)}));
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
  for (const auto& [name, text] : kNames) {
    const auto id = file->spelled.Find(text);
    if (!id) continue;
    config->special_tokens.emplace(name, text);
    if (name == std::string_view("bos_token")) file->prefix_ids = {*id};
  }
  return file;
}

}  // namespace tandem
