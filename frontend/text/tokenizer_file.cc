#include "frontend/text/tokenizer_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/strings.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/token_model_file.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 8;

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

StatusOr<std::vector<TokenId>> TemplateIds(const json& spec, const json& item) {
  std::vector<TokenId> found;
  ASSIGN_OR_RETURN(const std::string name, StringField(Field(item, "SpecialToken"), "id", ""));
  const json& ids = Field(Field(Field(spec, "special_tokens"), name.c_str()), "ids");
  if (!ids.is_array()) return WrongType("ids of special token \"" + name + "\"", ids, "an array");
  for (const json& value : ids) {
    ASSIGN_OR_RETURN(const TokenId id, ToTokenId(value, name));
    found.push_back(id);
  }
  return found;
}

// Those of a TemplateProcessing's `pair`: before, between and after "$A" and "$B".
Status AddPairTemplate(const json& spec, TokenizerFile* file) {
  const json& pair = Field(spec, "pair");
  if (!pair.is_array()) return OkStatus();
  std::vector<TokenId>* const parts[] = {&file->pair.prefix_ids, &file->pair.between_ids,
                                         &file->pair.suffix_ids};
  size_t num_texts = 0;
  for (const json& item : pair) {
    if (item.is_object() && item.contains("Sequence")) {
      if (++num_texts > 2) return InvalidArgumentError("TemplateProcessing pair has three texts");
      if (num_texts == 2) file->pair.has_types = Field(item["Sequence"], "type_id") == 1;
      continue;
    }
    ASSIGN_OR_RETURN(const auto ids, TemplateIds(spec, item));
    parts[num_texts]->insert(parts[num_texts]->end(), ids.begin(), ids.end());
  }
  return OkStatus();
}

// The ids around "$A" of a TemplateProcessing's `single`.
Status AddTemplate(const json& spec, TokenizerFile* file) {
  RETURN_IF_ERROR(AddPairTemplate(spec, file));
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
    ASSIGN_OR_RETURN(const auto ids, TemplateIds(spec, item));
    std::vector<TokenId>& part = before ? prefix : suffix;
    part.insert(part.end(), ids.begin(), ids.end());
  }
  file->prefix_ids.insert(file->prefix_ids.begin(), prefix.begin(), prefix.end());
  file->suffix_ids.insert(file->suffix_ids.end(), suffix.begin(), suffix.end());
  return OkStatus();
}

Status AddOffsetTrim(const json& spec, TokenizerFile* file) {
  ASSIGN_OR_RETURN(const bool trims, BoolField(spec, "trim_offsets", true));
  OffsetTrim trim;
  ASSIGN_OR_RETURN(trim.add_prefix_space, BoolField(spec, "add_prefix_space", true));
  if (trims) file->offset_trim = trim;
  return OkStatus();
}

Status AddPostProcessor(const json& spec, int depth, TokenizerFile* file) {
  if (spec.is_null()) return OkStatus();
  if (depth > kMaxDepth) return InvalidArgumentError("post_processor is nested too deeply");
  ASSIGN_OR_RETURN(const std::string kind, KindOf(spec, "post_processor"));
  if (kind == "ByteLevel") return AddOffsetTrim(spec, file);
  if (kind == "TemplateProcessing") return AddTemplate(spec, file);
  if (kind == "Sequence") {
    for (const json& item : Field(spec, "processors")) {
      RETURN_IF_ERROR(AddPostProcessor(item, depth + 1, file));
    }
    return OkStatus();
  }
  if (kind == "RobertaProcessing") RETURN_IF_ERROR(AddOffsetTrim(spec, file));
  if (kind == "BertProcessing" || kind == "RobertaProcessing") {
    for (const char* end : {"cls", "sep"}) {
      const json& pair = Field(spec, end);
      if (!pair.is_array() || pair.size() != 2) return WrongType(end, pair, "[token, id]");
      ASSIGN_OR_RETURN(const TokenId id, ToTokenId(pair[1], end));
      (end == std::string_view("cls") ? file->prefix_ids : file->suffix_ids).push_back(id);
    }
    file->pair = {.prefix_ids = file->prefix_ids,
                  .between_ids = file->suffix_ids,
                  .suffix_ids = file->suffix_ids,
                  .has_types = kind == "BertProcessing"};
    if (kind == "RobertaProcessing") {  // the separator twice
      auto& between = file->pair.between_ids;
      between.insert(between.end(), file->suffix_ids.begin(), file->suffix_ids.end());
    }
    return OkStatus();
  }
  return UnimplementedError("post_processor \"" + kind + "\" is not supported");
}

// The text of a special token: "<s>" or {"content": "<s>", ...}.
std::string TokenText(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  const json& content = Field(value, "content");
  return content.is_string() ? content.get<std::string>() : std::string();
}

void ReadSpecialTokens(const json& root, TokenizerConfig* config) {
  for (const auto& [name, value] : root.items()) {
    if (name.ends_with("_token")) {
      std::string text = TokenText(value);
      if (!text.empty()) config->special_tokens[name] = std::move(text);
    }
    const bool has_others = name == "additional_special_tokens" || name == "extra_special_tokens";
    if (!has_others || !value.is_array()) continue;
    for (const json& token : value) config->other_special_tokens.push_back(TokenText(token));
  }
}

// Tokens by id, as tokenizer_config.json lists them.
StatusOr<std::vector<AddedToken>> ParseAddedTokensDecoder(const json& spec) {
  std::vector<AddedToken> tokens;
  if (!spec.is_object()) return tokens;
  json list = json::array();
  for (const auto& [id, token] : spec.items()) {
    const auto number = ParseNumber<int64_t>(id);
    if (!number || !token.is_object()) continue;
    list.push_back(token);
    list.back()["id"] = *number;
  }
  return ParseAddedTokens(list);
}

}  // namespace

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

StatusOr<std::unique_ptr<TokenizerFile>> ParseTokenizerFile(std::string_view tokenizer_json) {
  const json root = json::parse(tokenizer_json, nullptr, false);
  if (!root.is_object()) return InvalidArgumentError("not a JSON object");
  return MakeTokenizerFile(root);
}

StatusOr<std::unique_ptr<TokenizerFile>> MakeTokenizerFile(const json& root) {
  auto file = std::make_unique<TokenizerFile>();
  ASSIGN_OR_RETURN(file->added_tokens, ParseAddedTokens(Field(root, "added_tokens")));
  ASSIGN_OR_RETURN(file->normalizer, Normalizer::Create(Field(root, "normalizer")));
  const json& model = Field(root, "model");
  ASSIGN_OR_RETURN(const bool takes_bytes, ModelTakesBytes(model));
  ASSIGN_OR_RETURN(
      file->pretokenizer,
      Pretokenizer::Create(Field(root, "pre_tokenizer"),
                           takes_bytes ? ByteLevelPieces::kBytes : ByteLevelPieces::kAlphabet));
  RETURN_IF_ERROR(AddPostProcessor(Field(root, "post_processor"), 0, file.get()));
  ASSIGN_OR_RETURN(file->decoder, TokenDecoder::Create(Field(root, "decoder")));

  TokenList vocabulary;
  ASSIGN_OR_RETURN(
      file->model,
      ParseTokenModel(model, takes_bytes && file->pretokenizer.byte_level(), &vocabulary));
  RETURN_IF_ERROR(FillVocabularies(vocabulary, file.get()));
  return file;
}

StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view config_json) {
  TokenizerConfig config;
  if (config_json.empty()) return config;
  const json root = json::parse(config_json, nullptr, false);
  if (!root.is_object()) return InvalidArgumentError("not a JSON object");
  ReadSpecialTokens(root, &config);
  config.has_added_tokens_decoder = root.contains("added_tokens_decoder");
  ASSIGN_OR_RETURN(config.added_tokens,
                   ParseAddedTokensDecoder(Field(root, "added_tokens_decoder")));
  if (const json& add = Field(root, "add_bos_token"); add.is_boolean()) config.add_bos_token = add;
  if (const json& add = Field(root, "add_eos_token"); add.is_boolean()) config.add_eos_token = add;
  ASSIGN_OR_RETURN(config.legacy, BoolField(root, "legacy", true));
  if (const json& name = Field(root, "tokenizer_class"); name.is_string()) {
    config.tokenizer_class = name.get<std::string>();
  }
  const json& chat_template = Field(root, "chat_template");
  if (chat_template.is_string()) config.chat_templates["default"] = chat_template;
  if (chat_template.is_array()) {
    for (const json& item : chat_template) {
      ASSIGN_OR_RETURN(const std::string name, StringField(item, "name", ""));
      ASSIGN_OR_RETURN(config.chat_templates[name], StringField(item, "template", ""));
    }
  }
  return config;
}

Status AddSpecialTokensMap(std::string_view special_tokens_map_json, TokenizerConfig* config) {
  const json root = json::parse(special_tokens_map_json, nullptr, false);
  if (!root.is_object()) return InvalidArgumentError("not a JSON object");
  ReadSpecialTokens(root, config);
  return OkStatus();
}

Status AddAddedTokens(std::string_view added_tokens_json, TokenizerConfig* config) {
  const json root = json::parse(added_tokens_json, nullptr, false);
  if (!root.is_object()) return InvalidArgumentError("not a JSON object");
  std::set<std::string> special(config->other_special_tokens.begin(),
                                config->other_special_tokens.end());
  for (const auto& [name, text] : config->special_tokens) special.insert(text);
  for (const auto& [text, id] : root.items()) {
    AddedToken token;
    ASSIGN_OR_RETURN(token.id, ToTokenId(id, text));
    token.content = text;
    token.special = special.count(text) != 0;
    token.normalized = !token.special;
    config->added_tokens.push_back(std::move(token));
  }
  return OkStatus();
}

void MarkSpecialTokens(const TokenizerConfig& config, TokenizerFile* file) {
  constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
  std::vector<std::string> texts = config.other_special_tokens;
  for (const char* name : kNames) {
    const auto named = config.special_tokens.find(name);
    if (named != config.special_tokens.end()) texts.push_back(named->second);
  }
  for (const std::string& text : texts) {
    const auto id = text.empty() ? std::nullopt : file->spelled.Find(text);
    const bool is_added =
        std::any_of(file->added_tokens.begin(), file->added_tokens.end(),
                    [&text](const AddedToken& token) { return token.content == text; });
    if (!id || is_added) continue;
    file->added_tokens.push_back(
        {.id = *id, .content = text, .normalized = false, .special = true});
  }
}

}  // namespace tandem
