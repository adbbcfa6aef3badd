#include "frontend/text/vocabulary_files.h"

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "common/utf8.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/split_patterns.h"

namespace tandem {
namespace {

using nlohmann::json;

// A class of transformers, with or without "Fast".
struct BpeClass {
  std::string_view name;
  const char* split = nullptr;  // null: GPT-2's words
  const char* normalizer = nullptr;
  std::vector<std::string_view> end_names = {};  // special tokens that are <|endoftext|>
};

const std::vector<BpeClass>& BpeClasses() {
  static const std::vector<BpeClass> classes = {
      {.name = "GPT2Tokenizer", .end_names = {"bos_token", "eos_token", "unk_token"}},
      {.name = "CodeGenTokenizer", .end_names = {"bos_token", "eos_token", "unk_token"}},
      {.name = "Qwen2Tokenizer",
       .split = kQwenSplit,
       .normalizer = "NFC",
       .end_names = {"eos_token", "unk_token", "pad_token"}},
  };
  return classes;
}

constexpr std::string_view kBertClasses[] = {"BertTokenizer", "DistilBertTokenizer",
                                             "ElectraTokenizer"};

Status UnknownClass(const TokenizerConfig& config, std::string_view file,
                    const std::string& known) {
  return UnimplementedError("tokenizer_class \"" + config.tokenizer_class + "\" with " +
                            std::string(file) + " is not supported, only " + known +
                            "; save the tokenizer as tokenizer.json");
}

bool Names(const TokenizerConfig& config, std::string_view tokenizer_class) {
  return config.tokenizer_class == tokenizer_class ||
         config.tokenizer_class == std::string(tokenizer_class) + "Fast";
}

StatusOr<const BpeClass*> FindBpeClass(const TokenizerConfig& config) {
  if (config.tokenizer_class.empty()) return &BpeClasses().front();
  std::string known;
  for (const BpeClass& row : BpeClasses()) {
    if (Names(config, row.name)) return &row;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return UnknownClass(config, "vocab.json", known);
}

Status CheckBertClass(const TokenizerConfig& config) {
  if (config.tokenizer_class.empty()) return OkStatus();
  std::string known;
  for (const std::string_view name : kBertClasses) {
    if (Names(config, name)) return OkStatus();
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return UnknownClass(config, "vocab.txt", known);
}

// Lines without their ends; the last one may have none.
StatusOr<std::vector<std::string_view>> ReadLines(std::string_view text, std::string_view file) {
  if (FindInvalidUtf8(text) != std::string_view::npos) {
    return InvalidArgumentError(std::string(file) + " is not UTF-8");
  }
  std::vector<std::string_view> lines = Split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (std::string_view& line : lines) {
    if (line.ends_with('\r')) line.remove_suffix(1);
  }
  return lines;
}

StatusOr<json> ReadMerges(std::string_view merges_txt) {
  ASSIGN_OR_RETURN(const auto lines, ReadLines(merges_txt, "merges.txt"));
  json merges = json::array();
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
      return InvalidArgumentError("merges.txt line " + std::to_string(i + 1) +
                                  " must be two tokens with a blank between them");
    }
    merges.push_back(json::array({line.substr(0, blank), line.substr(blank + 1)}));
  }
  return merges;
}

json AddedTokensOf(const TokenizerConfig& config) {
  json tokens = json::array();
  for (const AddedToken& token : config.added_tokens) {
    tokens.push_back({{"id", token.id},
                      {"content", token.content},
                      {"single_word", token.single_word},
                      {"lstrip", token.lstrip},
                      {"rstrip", token.rstrip},
                      {"normalized", token.normalized},
                      {"special", token.special}});
  }
  return tokens;
}

std::optional<TokenId> FindSpecial(const TokenizerFile& file, const TokenizerConfig& config,
                                   const char* name) {
  const auto token = config.special_tokens.find(name);
  if (token == config.special_tokens.end()) return std::nullopt;
  return file.spelled.Find(token->second);
}

}  // namespace

StatusOr<std::unique_ptr<TokenizerFile>> ParseVocabAndMerges(std::string_view vocab_json,
                                                             std::string_view merges_txt,
                                                             std::string_view config_json,
                                                             TokenizerConfig* config) {
  ASSIGN_OR_RETURN(const BpeClass* row, FindBpeClass(*config));
  json vocab = json::parse(vocab_json, nullptr, false);
  if (!vocab.is_object()) return InvalidArgumentError("vocab.json is not a JSON object");
  for (const std::string_view name : row->end_names) {
    config->special_tokens.emplace(name, "<|endoftext|>");
  }
  const json settings = json::parse(config_json, nullptr, false);
  ASSIGN_OR_RETURN(const bool prefix, BoolField(settings, "add_prefix_space", false));
  json to_bytes = {{"type", "ByteLevel"}, {"add_prefix_space", prefix}};
  to_bytes["use_regex"] = row->split == nullptr;
  json steps = json::array();
  if (row->split != nullptr) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", row->split}}}, {"behavior", "Isolated"}});
  }
  steps.push_back(std::move(to_bytes));
  ASSIGN_OR_RETURN(json merges, ReadMerges(merges_txt));
  json root = {
      {"added_tokens", AddedTokensOf(*config)},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}}}};
  if (row->normalizer != nullptr) root["normalizer"] = {{"type", row->normalizer}};
  ASSIGN_OR_RETURN(auto file, MakeTokenizerFile(root));
  if (config->add_bos_token.value_or(false)) {
    if (const auto id = FindSpecial(*file, *config, "bos_token")) file->prefix_ids = {*id};
  }
  if (config->add_eos_token.value_or(false)) {
    if (const auto id = FindSpecial(*file, *config, "eos_token")) file->suffix_ids = {*id};
  }
  return file;
}

StatusOr<std::unique_ptr<TokenizerFile>> ParseVocabTxt(std::string_view vocab_txt,
                                                       std::string_view config_json,
                                                       TokenizerConfig* config) {
  RETURN_IF_ERROR(CheckBertClass(*config));
  constexpr std::pair<const char*, const char*> kNames[] = {{"unk_token", "[UNK]"},
                                                            {"sep_token", "[SEP]"},
                                                            {"pad_token", "[PAD]"},
                                                            {"cls_token", "[CLS]"},
                                                            {"mask_token", "[MASK]"}};
  for (const auto& [name, text] : kNames) config->special_tokens.emplace(name, text);
  ASSIGN_OR_RETURN(const auto lines, ReadLines(vocab_txt, "vocab.txt"));
  json vocab = json::object();
  for (size_t id = 0; id < lines.size(); ++id) vocab[std::string(lines[id])] = id;
  const json settings = json::parse(config_json, nullptr, false);
  ASSIGN_OR_RETURN(const bool lowercase, BoolField(settings, "do_lower_case", true));
  ASSIGN_OR_RETURN(const bool chinese, BoolField(settings, "tokenize_chinese_chars", true));
  ASSIGN_OR_RETURN(const bool strips, BoolField(settings, "strip_accents", lowercase));
  const json root = {{"added_tokens", AddedTokensOf(*config)},
                     {"normalizer",
                      {{"type", "BertNormalizer"},
                       {"clean_text", true},
                       {"handle_chinese_chars", chinese},
                       {"strip_accents", strips},
                       {"lowercase", lowercase}}},
                     {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                     {"model",
                      {{"type", "WordPiece"},
                       {"vocab", std::move(vocab)},
                       {"unk_token", config->special_tokens["unk_token"]},
                       {"continuing_subword_prefix", "##"}}}};
  ASSIGN_OR_RETURN(auto file, MakeTokenizerFile(root));
  if (const auto id = FindSpecial(*file, *config, "cls_token")) file->prefix_ids = {*id};
  if (const auto id = FindSpecial(*file, *config, "sep_token")) file->suffix_ids = {*id};
  return file;
}

}  // namespace tandem
