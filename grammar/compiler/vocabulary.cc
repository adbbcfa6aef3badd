#include "grammar/compiler/vocabulary.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "common/log.h"
#include "common/utf8.h"
#include "frontend/processing/model_defaults.h"
#include "frontend/text/tokenizer.h"
#include "grammar/compiler/utf8_so_far.h"

namespace tandem {
namespace {

// Has the rules that most schemas have; what xgrammar finds out about one serves every schema.
constexpr char kCommonSchema[] = R"({"type": "object", "properties": {
  "text": {"type": "string"}, "whole": {"type": "integer"}, "number": {"type": "number"},
  "flag": {"type": "boolean"}, "nothing": {"type": "null"}, "any": {},
  "list": {"type": "array", "items": {"type": "string"}},
  "numbers": {"type": "array", "items": {"type": "integer"}},
  "object": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
             "required": ["a", "b"]}},
  "required": ["text", "list"]})";

// Strings of limited length take long: up to 128 characters they share what was found out about one
// of 128, beyond that each length stands for itself.
constexpr int kFurtherLengths[] = {128, 255, 256, 200, 500, 1000};

int NumCompileThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 4);
}

std::vector<int32_t> EndTokens(const Tokenizer& tokenizer, const ModelDefaults& defaults,
                               int32_t vocab_size) {
  std::vector<int32_t> ids(defaults.eos_ids.begin(), defaults.eos_ids.end());
  if (tokenizer.eos_id()) ids.push_back(*tokenizer.eos_id());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::erase_if(ids, [=](int32_t id) { return id < 0 || id >= vocab_size; });
  return ids;
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(xgrammar::TokenizerInfo tokens)
    : tokens_(std::move(tokens)), compiler_(tokens_, NumCompileThreads()) {}

StatusOr<GrammarVocabulary> GrammarVocabulary::Load(const std::string& model_folder,
                                                    int32_t vocab_size,
                                                    const std::string& tokenizer_folder) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                   Tokenizer::Load(tokenizer_folder.empty() ? model_folder : tokenizer_folder));
  ASSIGN_OR_RETURN(const ModelDefaults defaults, LoadModelDefaults(model_folder));
  const std::vector<int32_t> end_tokens = EndTokens(*tokenizer, defaults, vocab_size);
  std::vector<std::string> texts(static_cast<size_t>(vocab_size));  // empty: never allowed
  std::vector<TokenId> special_tokens, continuing_tokens;
  for (TokenId id = 0; id < std::min(vocab_size, tokenizer->vocab_size()); ++id) {
    const std::string_view bytes = tokenizer->TokenBytes(id);
    if (!tokenizer->Contains(id) || !CanFollowOpenCharacter(bytes)) continue;
    texts[static_cast<size_t>(id)] = bytes;
    if (!bytes.empty() && IsUtf8Continuation(bytes[0])) continuing_tokens.push_back(id);
    if (tokenizer->IsSpecial(id) && !std::ranges::binary_search(end_tokens, id)) {
      special_tokens.push_back(id);
    }
  }
  try {
    GrammarVocabulary vocabulary(
        xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW, vocab_size, end_tokens));
    vocabulary.special_tokens_ = std::move(special_tokens);
    vocabulary.continuing_tokens_ = std::move(continuing_tokens);
    vocabulary.compiler().CompileBuiltinJSONGrammar();
    vocabulary.compiler().CompileJSONSchema(kCommonSchema);
    return vocabulary;
  } catch (const std::exception& error) {
    return InternalError(std::string("xgrammar does not take the vocabulary: ") + error.what());
  }
}

bool GrammarVocabulary::WarmUpFurther() {
  if (num_warmed_up_ == std::size(kFurtherLengths)) return false;
  const std::string length = std::to_string(kFurtherLengths[num_warmed_up_++]);
  try {
    compiler_.CompileJSONSchema(R"({"type": "string", "maxLength": )" + length + "}");
  } catch (const std::exception& error) {
    LOG_WARNING << "strings of " << length << " characters are not made ready: " << error.what();
  }
  return true;
}

}  // namespace tandem
