#include "frontend/text/tokenizer_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "common/read_file.h"
#include "frontend/text/sentencepiece_file.h"
#include "frontend/text/tekken_file.h"
#include "frontend/text/tiktoken_file.h"
#include "frontend/text/vocabulary_files.h"

namespace tandem {
namespace {

constexpr int64_t kMaxFileBytes = 256 << 20;

// What a reader of one kind is given.
struct FolderFiles {
  std::string folder;
  std::string bytes;  // of the file that the kind is known by
  std::string config_json;
};
using ReadKind = StatusOr<std::unique_ptr<TokenizerFile>> (*)(const FolderFiles& files,
                                                              TokenizerConfig* config);

StatusOr<std::unique_ptr<TokenizerFile>> ReadModel(const FolderFiles& files,
                                                   TokenizerConfig* config) {
  return IsTiktokenFile(files.bytes) ? ParseTiktokenFile(files.bytes, *config)
                                     : ParseSentencePieceFile(files.bytes, *config);
}

StatusOr<std::unique_ptr<TokenizerFile>> ReadTekken(const FolderFiles& files,
                                                    TokenizerConfig* config) {
  return ParseTekkenFile(files.bytes, config);
}

// T5's file: texts end with </s>, and 100 tokens of the class follow those of the file. Other
// classes with such a file put other tokens around a text.
StatusOr<std::unique_ptr<TokenizerFile>> ReadSpiece(const FolderFiles& files,
                                                    TokenizerConfig* config) {
  const std::string& name = config->tokenizer_class;
  if (!name.empty() && name != "T5Tokenizer" && name != "T5TokenizerFast") {
    return UnimplementedError("tokenizer_class \"" + name +
                              "\" with spiece.model is not supported, only T5Tokenizer; save the "
                              "tokenizer as tokenizer.json");
  }
  config->add_bos_token = false;
  config->add_eos_token = true;
  config->special_tokens.emplace("eos_token", "</s>");
  config->special_tokens.emplace("unk_token", "<unk>");
  config->special_tokens.emplace("pad_token", "<pad>");
  ASSIGN_OR_RETURN(auto file, ParseSentencePieceFile(files.bytes, *config));
  if (!config->added_tokens.empty()) return file;  // extra ids are among them
  constexpr int kNumExtra = 100;
  const TokenId first = file->spelled.size();
  for (int i = 0; i < kNumExtra; ++i) {
    config->added_tokens.push_back(
        {.id = first + i,
         .content = "<extra_id_" + std::to_string(kNumExtra - 1 - i) + ">",
         .normalized = false,
         .special = true});
  }
  return ParseSentencePieceFile(files.bytes, *config);
}

StatusOr<std::unique_ptr<TokenizerFile>> ReadVocabAndMerges(const FolderFiles& files,
                                                            TokenizerConfig* config) {
  ASSIGN_OR_RETURN(const std::string merges, ReadFile(files.folder + "/merges.txt", kMaxFileBytes));
  return ParseVocabAndMerges(files.bytes, merges, files.config_json, config);
}

StatusOr<std::unique_ptr<TokenizerFile>> ReadVocabTxt(const FolderFiles& files,
                                                      TokenizerConfig* config) {
  return ParseVocabTxt(files.bytes, files.config_json, config);
}

StatusOr<std::unique_ptr<TokenizerFile>> RefuseFile(const FolderFiles&, TokenizerConfig*) {
  return UnimplementedError(
      "this kind of tokenizer is not supported; save the tokenizer as tokenizer.json");
}

StatusOr<std::unique_ptr<TokenizerFile>> ReadTokenizerJson(const FolderFiles& files,
                                                           TokenizerConfig*) {
  return ParseTokenizerFile(files.bytes);
}

struct Kind {
  const char* name;
  ReadKind read;
};
constexpr Kind kModelFile = {"", ReadModel};  // of several names
constexpr Kind kTokenizerJson = {"tokenizer.json", ReadTokenizerJson};
// Where neither is there. Refused ones do not contain all that is needed to read them.
constexpr Kind kKinds[] = {
    {"tekken.json", ReadTekken},  {"tokenizer.tok.json", RefuseFile},
    {"spiece.model", ReadSpiece}, {"sentencepiece.bpe.model", RefuseFile},
    {"vocab.txt", ReadVocabTxt},  {"vocab.json", ReadVocabAndMerges},
    {"merges.txt", RefuseFile},
};

bool HasFile(const std::string& folder, const std::string& name) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::path(folder) / name, error);
}

// The kind and the name of its file.
StatusOr<std::pair<ReadKind, std::string>> FindKind(const std::string& folder) {
  using Found = std::pair<ReadKind, std::string>;
  if (HasFile(folder, kTokenizerJson.name)) return Found(kTokenizerJson.read, kTokenizerJson.name);
  std::vector<std::string> models;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "tokenizer.model" || name == "tiktoken.model" || name.ends_with(".tiktoken")) {
      models.push_back(name);
    }
  }
  if (models.size() > 1) {
    std::sort(models.begin(), models.end());
    return InvalidArgumentError("both " + models[0] + " and " + models[1] +
                                " are there and no tokenizer.json; keep one");
  }
  if (!models.empty()) return Found(kModelFile.read, models[0]);
  for (const Kind& kind : kKinds) {
    if (HasFile(folder, kind.name)) return Found(kind.read, kind.name);
  }
  return NotFoundError("there is no tokenizer.json, nor another tokenizer's file");
}

// The folder's chat templates in files of their own, by name.
StatusOr<std::map<std::string, std::string>> ReadTemplateFiles(const std::string& folder) {
  std::map<std::string, std::string> templates;
  ASSIGN_OR_RETURN(std::string text, ReadFileIfAny(folder + "/chat_template.jinja", kMaxFileBytes));
  if (!text.empty()) templates["default"] = std::move(text);
  std::error_code error;
  const std::string others = folder + "/additional_chat_templates";
  for (const auto& entry : std::filesystem::directory_iterator(others, error)) {
    if (entry.path().extension() != ".jinja") continue;
    ASSIGN_OR_RETURN(templates[entry.path().stem().string()],
                     ReadFile(entry.path().string(), kMaxFileBytes));
  }
  return templates;
}

StatusOr<TokenizerConfig> ReadConfig(const std::string& folder, std::string_view config_json) {
  auto config = ParseTokenizerConfig(config_json);
  if (!config.ok()) return config.status().WithContext("tokenizer_config.json");
  if (!config->has_added_tokens_decoder) {
    for (const auto& [name, add] : {std::pair("special_tokens_map.json", &AddSpecialTokensMap),
                                    std::pair("added_tokens.json", &AddAddedTokens)}) {
      ASSIGN_OR_RETURN(const std::string json, ReadFileIfAny(folder + "/" + name, kMaxFileBytes));
      if (json.empty()) continue;
      if (const Status added = add(json, &*config); !added.ok()) return added.WithContext(name);
    }
  }
  ASSIGN_OR_RETURN(auto templates, ReadTemplateFiles(folder));
  if (!templates.empty()) config->chat_templates = std::move(templates);
  return config;
}

StatusOr<TokenizerParts> ReadParts(const std::string& folder) {
  FolderFiles files = {.folder = folder, .bytes = {}, .config_json = {}};
  ASSIGN_OR_RETURN(files.config_json,
                   ReadFileIfAny(folder + "/tokenizer_config.json", kMaxFileBytes));
  TokenizerParts parts;
  ASSIGN_OR_RETURN(parts.config, ReadConfig(folder, files.config_json));
  ASSIGN_OR_RETURN(const auto kind, FindKind(folder));
  ASSIGN_OR_RETURN(files.bytes, ReadFile(folder + "/" + kind.second, kMaxFileBytes));
  auto file = kind.first(files, &parts.config);
  if (!file.ok()) return file.status().WithContext(kind.second);
  parts.file = *std::move(file);
  MarkSpecialTokens(parts.config, parts.file.get());
  return parts;
}

}  // namespace

StatusOr<TokenizerParts> ReadTokenizerFolder(const std::string& model_folder) {
  auto parts = ReadParts(model_folder);
  if (!parts.ok()) return parts.status().WithContext(model_folder);
  return parts;
}

bool HasTokenizerFile(const std::string& model_folder) {
  return FindKind(model_folder).status().code() != StatusCode::kNotFound;
}

}  // namespace tandem
