#include "frontend/text/tokenizer_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/utf8.h"
#include "frontend/text/byte_level.h"
#include "frontend/text/json_fields.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kMaxVocabSize = 1 << 24;
constexpr int kMaxDepth = 8;

StatusOr<TokenId> ToTokenId(const json& value, std::string_view name) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() >= kMaxVocabSize) {
    return InvalidArgumentError("id of \"" + std::string(name) + "\" is " + value.dump() +
                                ", must be an integer below " + std::to_string(kMaxVocabSize));
  }
  return static_cast<TokenId>(value.get<int64_t>());
}

StatusOr<std::vector<AddedToken>> ParseAddedTokens(const json& spec) {
  std::vector<AddedToken> tokens;
  if (spec.is_null()) return tokens;
  if (!spec.is_array()) return WrongType("added_tokens", spec, "an array");
  for (const json& item : spec) {
    AddedToken token;
    ASSIGN_OR_RETURN(token.content, StringField(item, "content", ""));
    ASSIGN_OR_RETURN(token.id, ToTokenId(Field(item, "id"), token.content));
    ASSIGN_OR_RETURN(token.single_word, BoolField(item, "single_word", false));
    ASSIGN_OR_RETURN(token.lstrip, BoolField(item, "lstrip", false));
    ASSIGN_OR_RETURN(token.rstrip, BoolField(item, "rstrip", false));
    ASSIGN_OR_RETURN(token.special, BoolField(item, "special", false));
    ASSIGN_OR_RETURN(token.normalized, BoolField(item, "normalized", !token.special));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

StatusOr<TokenList> ParseVocab(const json& spec) {
  if (!spec.is_object()) return WrongType("vocab", spec, "an object");
  TokenList tokens;
  tokens.reserve(spec.size());
  for (const auto& [text, value] : spec.items()) {
    ASSIGN_OR_RETURN(const TokenId id, ToTokenId(value, text));
    tokens.emplace_back(id, text);
  }
  return tokens;
}

// A merge is "left right" or ["left", "right"].
StatusOr<Bpe::Merge> ParseMerge(const json& item) {
  if (item.is_string()) {
    const std::string text = item.get<std::string>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return Bpe::Merge(text.substr(0, space), text.substr(space + 1));
    }
  } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
    return Bpe::Merge(item[0].get<std::string>(), item[1].get<std::string>());
  }
  return InvalidArgumentError("merge " + item.dump(-1, ' ', false, json::error_handler_t::replace) +
                              " must be two tokens");
}

Status CheckBpeModel(const json& model) {
  ASSIGN_OR_RETURN(const std::string kind, StringField(model, "type", "BPE"));
  if (kind != "BPE") return UnimplementedError("model \"" + kind + "\" is not supported");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const std::string text, StringField(model, affix, ""));
    if (!text.empty()) {
      return UnimplementedError("model with " + std::string(affix) + " is not supported");
    }
  }
  const json& dropout = Field(model, "dropout");
  if (dropout.is_number() && dropout.get<double>() != 0) {
    return UnimplementedError("model with dropout is not supported");
  }
  return OkStatus();
}

StatusOr<Bpe> ParseBpe(const json& model, bool byte_level, const TokenList& vocab) {
  RETURN_IF_ERROR(CheckBpeModel(model));
  BpeOptions options;
  options.byte_level = byte_level;
  ASSIGN_OR_RETURN(options.ignore_merges, BoolField(model, "ignore_merges", false));
  ASSIGN_OR_RETURN(options.byte_fallback, BoolField(model, "byte_fallback", false));
  ASSIGN_OR_RETURN(options.fuse_unknown, BoolField(model, "fuse_unk", false));
  ASSIGN_OR_RETURN(const std::string unknown, StringField(model, "unk_token", ""));

  TokenList symbols;
  symbols.reserve(vocab.size());
  for (const auto& [id, text] : vocab) {
    if (!unknown.empty() && text == unknown) options.unknown_id = id;
    if (!byte_level) {
      symbols.emplace_back(id, text);
    } else if (auto bytes = AlphabetToBytes(text); bytes.has_value()) {
      symbols.emplace_back(id, std::move(*bytes));
    }
  }
  const json& merge_list = Field(model, "merges");
  if (!merge_list.is_array()) return WrongType("merges", merge_list, "an array");
  std::vector<Bpe::Merge> merges;
  merges.reserve(merge_list.size());
  for (const json& item : merge_list) {
    ASSIGN_OR_RETURN(Bpe::Merge merge, ParseMerge(item));
    if (byte_level) {
      auto left = AlphabetToBytes(merge.first);
      auto right = AlphabetToBytes(merge.second);
      // No text can ever hold such a symbol, but the rank it takes counts: tokens follow in order.
      if (!left || !right) return InvalidArgumentError("merge outside the byte alphabet");
      merge = {std::move(*left), std::move(*right)};
    }
    merges.push_back(std::move(merge));
  }
  return Bpe::Create(Vocabulary(symbols), merges, options);
}

// The ids around "$A" of a TemplateProcessing's `single`.
Status AddTemplate(const json& spec, TokenizerFile* file) {
  bool before = true;
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
  const json& single = Field(spec, "single");
  if (!single.is_array()) return WrongType("TemplateProcessing single", single, "an array");
  for (const json& item : single) {
    if (item.is_object() && item.contains("Sequence")) {
      before = false;
      continue;
    }
    ASSIGN_OR_RETURN(const std::string name, StringField(Field(item, "SpecialToken"), "id", ""));
    const json& ids = Field(Field(Field(spec, "special_tokens"), name.c_str()), "ids");
    if (!ids.is_array()) return WrongType("ids of special token \"" + name + "\"", ids, "an array");
    for (const json& value : ids) {
      ASSIGN_OR_RETURN(const TokenId id, ToTokenId(value, name));
      (before ? prefix : suffix).push_back(id);
    }
  }
  file->prefix_ids.insert(file->prefix_ids.begin(), prefix.begin(), prefix.end());
  file->suffix_ids.insert(file->suffix_ids.end(), suffix.begin(), suffix.end());
  return OkStatus();
}

Status AddPostProcessor(const json& spec, int depth, TokenizerFile* file) {
  if (spec.is_null()) return OkStatus();
  if (depth > kMaxDepth) return InvalidArgumentError("post_processor is nested too deeply");
  ASSIGN_OR_RETURN(const std::string kind, KindOf(spec, "post_processor"));
  if (kind == "ByteLevel") return OkStatus();  // moves offsets only
  if (kind == "TemplateProcessing") return AddTemplate(spec, file);
  if (kind == "Sequence") {
    for (const json& item : Field(spec, "processors")) {
      RETURN_IF_ERROR(AddPostProcessor(item, depth + 1, file));
    }
    return OkStatus();
  }
  if (kind == "BertProcessing" || kind == "RobertaProcessing") {
    for (const char* end : {"cls", "sep"}) {
      const json& pair = Field(spec, end);
      if (!pair.is_array() || pair.size() != 2) return WrongType(end, pair, "[token, id]");
      ASSIGN_OR_RETURN(const TokenId id, ToTokenId(pair[1], end));
      (end == std::string_view("cls") ? file->prefix_ids : file->suffix_ids).push_back(id);
    }
    return OkStatus();
  }
  return UnimplementedError("post_processor \"" + kind + "\" is not supported");
}

// Added tokens come after the model's and win.
Status FillVocabularies(const TokenList& vocab, TokenizerFile* file) {
  std::set<TokenId> added_ids;
  TokenList spelled;
  TokenList bytes;
  TokenList prepared;
  const auto decode = [&](TokenId id, const std::string& text) {
    bytes.emplace_back(id, file->decoder.TokenBytes(text));
    if (!file->decoder.byte_level()) prepared.emplace_back(id, file->decoder.Prepare(text));
  };
  for (const AddedToken& token : file->added_tokens) {
    if (!added_ids.insert(token.id).second) continue;
    spelled.emplace_back(token.id, token.content);
    // A decoder is given added tokens as they look in normalized text.
    if (token.normalized) {
      ASSIGN_OR_RETURN(const std::string normal, file->normalizer.Apply(token.content));
      decode(token.id, normal);
    } else {
      decode(token.id, token.content);
    }
  }
  for (const auto& [id, text] : vocab) {
    if (added_ids.count(id) != 0) continue;
    spelled.emplace_back(id, text);
    decode(id, text);
  }
  file->spelled = Vocabulary(spelled);
  file->bytes = TokenTexts(bytes);
  file->prepared = TokenTexts(prepared);
  return OkStatus();
}

// The text of a special token: "<s>" or {"content": "<s>", ...}.
std::string TokenText(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  const json& content = Field(value, "content");
  return content.is_string() ? content.get<std::string>() : std::string();
}

}  // namespace

StatusOr<std::unique_ptr<TokenizerFile>> ParseTokenizerFile(std::string_view tokenizer_json) {
  const json root = json::parse(tokenizer_json, nullptr, false);
  if (!root.is_object()) return InvalidArgumentError("not a JSON object");
  auto file = std::make_unique<TokenizerFile>();
  ASSIGN_OR_RETURN(file->added_tokens, ParseAddedTokens(Field(root, "added_tokens")));
  ASSIGN_OR_RETURN(file->normalizer, Normalizer::Create(Field(root, "normalizer")));
  ASSIGN_OR_RETURN(file->pretokenizer, Pretokenizer::Create(Field(root, "pre_tokenizer")));
  RETURN_IF_ERROR(AddPostProcessor(Field(root, "post_processor"), 0, file.get()));
  ASSIGN_OR_RETURN(file->decoder, TokenDecoder::Create(Field(root, "decoder")));

  const json& model = Field(root, "model");
  RETURN_IF_ERROR(CheckBpeModel(model));
  ASSIGN_OR_RETURN(const TokenList vocab, ParseVocab(Field(model, "vocab")));
  ASSIGN_OR_RETURN(file->bpe, ParseBpe(model, file->pretokenizer.byte_level(), vocab));
  RETURN_IF_ERROR(FillVocabularies(vocab, file.get()));
  return file;
}

StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view config_json) {
  TokenizerConfig config;
  if (config_json.empty()) return config;
  const json root = json::parse(config_json, nullptr, false);
  if (!root.is_object()) return InvalidArgumentError("not a JSON object");
  for (const auto& [name, value] : root.items()) {
    if (!name.ends_with("_token")) continue;
    std::string text = TokenText(value);
    if (!text.empty()) config.special_tokens.emplace(name, std::move(text));
  }
  const json& chat_template = Field(root, "chat_template");
  if (chat_template.is_string()) config.chat_template = chat_template.get<std::string>();
  if (chat_template.is_array()) {
    for (const json& item : chat_template) {
      if (Field(item, "name") == "default" && Field(item, "template").is_string()) {
        config.chat_template = Field(item, "template").get<std::string>();
      }
    }
  }
  return config;
}

}  // namespace tandem
