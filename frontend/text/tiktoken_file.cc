#include "frontend/text/tiktoken_file.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "common/strings.h"
#include "frontend/text/base64.h"
#include "frontend/text/ranked_tokens.h"
#include "frontend/text/split_patterns.h"

namespace tandem {
namespace {

constexpr TokenId kMaxVocabSize = 1 << 24;

// ---- Families ----

// Special tokens take the ids after the ranks: first the named ones, then numbered ones.
struct Family {
  std::string_view tokenizer_class = {};
  const char* pattern = nullptr;
  std::vector<std::string_view> special_tokens = {};
  std::string_view numbered = {};  // what a numbered one's text begins with; "|>" ends it
  int num_numbered = 0;
  int first_number = 0;
  bool number_is_id = false;
  const char* normalizer = "";
  std::vector<std::string_view> prefix = {};  // with add_special_tokens
};

const std::vector<Family>& Families() {
  static const std::vector<Family> families = {
      {.tokenizer_class = "QWenTokenizer",
       .pattern = kQwenSplit,
       .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
       .numbered = "<|extra_",
       .num_numbered = 205,
       .normalizer = "NFC"},
      {.tokenizer_class = "TikTokenTokenizer",  // Kimi, Moonlight
       .pattern = kKimiSplit,
       .numbered = "<|reserved_token_",
       .num_numbered = 256,
       .number_is_id = true},
      {.tokenizer_class = "ChatGLM4Tokenizer",
       .pattern = kLlama3Split,
       .prefix = {"[gMASK]", "<sop>"}},
      // What transformers makes of such a file when no class of its own reads it.
      {.tokenizer_class = "PreTrainedTokenizerFast", .pattern = kLlama3Split},
      {.tokenizer_class = "PreTrainedTokenizer", .pattern = kLlama3Split},
  };
  return families;
}

// Llama 3 as Meta ships it has no tokenizer_config.json; its number of ranks identifies it.
const Family& Llama3() {
  static const Family family = {
      .pattern = kLlama3Split,
      .special_tokens = {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
                         "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>",
                         "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>",
                         "<|python_tag|>"},
      .numbered = "<|reserved_special_token_",
      .num_numbered = 245,
      .first_number = 2,
      .prefix = {"<|begin_of_text|>"}};
  return family;
}

StatusOr<const Family*> FindFamily(const TokenizerConfig& config, size_t num_ranks) {
  constexpr size_t kLlama3Ranks = 128'000;
  if (config.tokenizer_class.empty()) {
    if (num_ranks == kLlama3Ranks) return &Llama3();
    return InvalidArgumentError(
        "tokenizer_config.json names no tokenizer_class, which decides how text is split");
  }
  std::string known;
  for (const Family& family : Families()) {
    if (family.tokenizer_class == config.tokenizer_class) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.tokenizer_class);
  }
  return UnimplementedError("tokenizer_class \"" + config.tokenizer_class +
                            "\" with a tiktoken file is not supported, only " + known);
}

// ---- Ranks ----

StatusOr<TokenList> ParseRanks(std::string_view bytes) {
  TokenList tokens;
  std::set<std::string, std::less<>> texts;
  std::set<TokenId> ids;
  size_t line_number = 0;
  for (std::string_view line : Split(bytes, '\n')) {
    ++line_number;
    line = StripAscii(line);
    if (line.empty()) continue;
    const auto malformed = [&](std::string_view why) {
      return InvalidArgumentError("line " + std::to_string(line_number) + ": " + std::string(why));
    };
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return malformed("must be a token in base64 and its rank");
    auto text = Base64Decode(line.substr(0, blank));
    if (!text || text->empty()) return malformed("the token is not base64");
    const auto id = ParseNumber<TokenId>(StripAscii(line.substr(blank)));
    if (!id || *id < 0 || *id >= kMaxVocabSize) {
      return malformed("the rank must be a number below " + std::to_string(kMaxVocabSize));
    }
    if (!texts.insert(*text).second) return malformed("the token occurs twice");
    if (!ids.insert(*id).second) return malformed("the rank occurs twice");
    tokens.emplace_back(*id, *std::move(text));
  }
  return tokens;
}

// ---- Special tokens ----

std::vector<AddedToken> SpecialTokens(const Family& family, TokenId first,
                                      const TokenizerConfig& config) {
  std::vector<AddedToken> tokens = config.added_tokens;
  std::set<TokenId> ids;
  std::set<std::string> texts;
  for (const AddedToken& token : tokens) {
    ids.insert(token.id);
    texts.insert(token.content);
  }
  TokenId id = first;
  const auto add = [&](std::string text) {
    if (ids.count(id) == 0 && texts.insert(text).second) {
      tokens.push_back(
          {.id = id, .content = std::move(text), .normalized = false, .special = true});
    }
    ++id;
  };
  for (const std::string_view text : family.special_tokens) add(std::string(text));
  for (int i = 0; i < family.num_numbered; ++i) {
    const int number = family.number_is_id ? id : family.first_number + i;
    add(std::string(family.numbered) + std::to_string(number) + "|>");
  }
  return tokens;
}

Status AddPrefix(const Family& family, const TokenizerConfig& config, TokenizerFile* file) {
  std::vector<std::string> texts(family.prefix.begin(), family.prefix.end());
  const auto bos = config.special_tokens.find("bos_token");
  if (config.add_bos_token.value_or(false) && bos != config.special_tokens.end()) {
    texts = {bos->second};
  }
  for (const std::string& text : texts) {
    const auto token = std::find_if(file->added_tokens.begin(), file->added_tokens.end(),
                                    [&](const AddedToken& added) { return added.content == text; });
    if (token == file->added_tokens.end()) {
      return InvalidArgumentError("added_tokens_decoder of tokenizer_config.json lacks \"" + text +
                                  "\", which begins every text");
    }
    file->prefix_ids.push_back(token->id);
  }
  return OkStatus();
}

}  // namespace

bool IsTiktokenFile(std::string_view bytes) {
  constexpr size_t kMaxLine = 4096;
  const std::string_view line = StripAscii(bytes.substr(0, std::min(bytes.find('\n'), kMaxLine)));
  const size_t blank = line.find(' ');
  return blank != std::string_view::npos && Base64Decode(line.substr(0, blank)) &&
         ParseNumber<int64_t>(StripAscii(line.substr(blank))).has_value();
}

StatusOr<std::unique_ptr<TokenizerFile>> ParseTiktokenFile(std::string_view bytes,
                                                           const TokenizerConfig& config) {
  ASSIGN_OR_RETURN(TokenList ranks, ParseRanks(bytes));
  ASSIGN_OR_RETURN(const Family* const family, FindFamily(config, ranks.size()));
  TokenId first_special = 0;
  for (const auto& [id, text] : ranks) first_special = std::max(first_special, id + 1);
  auto added_tokens = SpecialTokens(*family, first_special, config);
  ASSIGN_OR_RETURN(auto file, MakeRankedTokenizer({.tokens = std::move(ranks),
                                                   .pattern = family->pattern,
                                                   .normalizer = family->normalizer,
                                                   .added_tokens = std::move(added_tokens)}));
  RETURN_IF_ERROR(AddPrefix(*family, config, file.get()));
  return file;
}

}  // namespace tandem
