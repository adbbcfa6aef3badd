#include "grammar/compiler/vocabulary.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "frontend/processing/model_defaults.h"
#include "frontend/text/tokenizer.h"

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

GrammarVocabulary::GrammarVocabulary(xgrammar::TokenizerInfo tokens,
                                     std::vector<TokenId> special_tokens)
    : tokens_(std::move(tokens)),
      compiler_(tokens_, NumCompileThreads()),
      special_tokens_(std::move(special_tokens)) {}

StatusOr<GrammarVocabulary> GrammarVocabulary::Load(const std::string& model_folder,
                                                    int32_t vocab_size) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::Load(model_folder));
  ASSIGN_OR_RETURN(const ModelDefaults defaults, LoadModelDefaults(model_folder));
  const std::vector<int32_t> end_tokens = EndTokens(*tokenizer, defaults, vocab_size);
  std::vector<std::string> texts(static_cast<size_t>(vocab_size));
  std::vector<TokenId> special_tokens;
  for (TokenId id = 0; id < std::min(vocab_size, tokenizer->vocab_size()); ++id) {
    if (!tokenizer->Contains(id)) continue;
    texts[static_cast<size_t>(id)] = tokenizer->TokenBytes(id);
    if (tokenizer->IsSpecial(id) && !std::ranges::binary_search(end_tokens, id)) {
      special_tokens.push_back(id);
    }
  }
  try {
    GrammarVocabulary vocabulary(
        xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW, vocab_size, end_tokens),
        std::move(special_tokens));
    vocabulary.compiler().CompileBuiltinJSONGrammar();
    vocabulary.compiler().CompileJSONSchema(kCommonSchema);
    return vocabulary;
  } catch (const std::exception& error) {
    return InternalError(std::string("xgrammar does not take the vocabulary: ") + error.what());
  }
}

}  // namespace tandem
