#include "frontend/model_texts.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "common/log.h"
#include "common/read_file.h"
#include "frontend/api/tokenize.h"
#include "frontend/chat/named_templates.h"
#include "frontend/media_flags.h"
#include "frontend/openai/json.h"
#include "frontend/parsers/response_template.h"
#include "frontend/parsers/tool_parser.h"
#include "frontend/processing/model_defaults.h"
#include "frontend/text/tokenizer.h"
#include "pooling/pooler_config.h"

namespace tandem {
namespace {

constexpr int64_t kMaxFileBytes = 16 << 20;

// The template named by the flag (one of the model's, a file, or the text itself), else the
// model's; none is allowed.
StatusOr<TemplateSources> LoadTemplates(const FrontendConfig& config, const Tokenizer& tokenizer) {
  const auto& named = tokenizer.chat_templates();
  std::string source = config.chat_template;
  if (source.empty()) return ChooseTemplates(named);
  if (const auto own = named.find(source); own != named.end()) {
    return TemplateSources{.chat = own->second, .with_tools = {}};
  }
  if (source.find_first_of("{\n") == std::string::npos) {
    auto file = ReadFile(source, kMaxFileBytes);
    if (!file.ok()) return file.status().WithContext("--chat-template");
    source = std::move(file).value();
  }
  return TemplateSources{.chat = std::move(source), .with_tools = {}};
}

StatusOr<std::optional<ChatTemplate>> CompileTemplate(const FrontendConfig& config,
                                                      const std::string& source) {
  if (source.empty()) return std::optional<ChatTemplate>();
  auto compiled = ChatTemplate::Compile(source);
  if (compiled.ok()) return std::optional<ChatTemplate>(std::move(compiled).value());
  return compiled.status().WithContext(config.chat_template.empty() ? "the model's chat template"
                                                                    : "--chat-template");
}

// The checkpoint's own description of its format; null: it has none.
StatusOr<std::shared_ptr<const ResponseTemplate>> LoadResponseTemplate(
    const FrontendConfig& config) {
  const std::string path = config.tokenizer + "/tokenizer_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::shared_ptr<const ResponseTemplate>();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  const auto json = ParseJson(text);
  if (!json.ok()) return json.status().WithContext(path);
  const bool has_one = (*json)->is_object() && (*json)->contains("response_template");
  if (!has_one) return std::shared_ptr<const ResponseTemplate>();
  auto parsed = ResponseTemplate::Parse((**json)["response_template"]);
  if (!parsed.ok()) return parsed.status().WithContext(path);
  return std::make_shared<const ResponseTemplate>(std::move(*parsed));
}

// Which parsers run, and whether the flags or the model chose them.
void LogParsers(const FrontendConfig& config, const ParserConfig& parsers,
                std::string_view chat_template) {
  const bool shows_calls = ToolParserOfTemplate(chat_template) != nullptr;
  const auto origin = [](const std::string& flag, bool of_template) {
    if (!flag.empty()) return "";
    return of_template ? " (from the chat template)" : " (from config.json)";
  };
  if (parsers.tool_parser != nullptr) {
    LOG_INFO << "tool call parser: " << parsers.tool_parser->name
             << origin(config.tool_call_parser, shows_calls);
  }
  if (parsers.reasoning != nullptr || parsers.is_harmony) {
    LOG_INFO << "reasoning parser: "
             << (parsers.is_harmony ? "openai_gptoss" : parsers.reasoning->name)
             << origin(config.reasoning_parser, shows_calls || !parsers.is_harmony);
  }
}

}  // namespace

StatusOr<std::unique_ptr<InputProcessor>> MakeInputProcessor(const FrontendConfig& config) {
  InputConfig input = config.input;
  ASSIGN_OR_RETURN(input.defaults,
                   LoadModelDefaults(config.model, config.generation_config,
                                     config.override_generation_config, config.hf_overrides));
  ASSIGN_OR_RETURN(input.pooling,
                   ReadPoolerConfig(config.model, config.pooling, config.hf_overrides));
  if (input.pooling) {
    for (const std::string& line : input.pooling->ignored) LOG_WARNING << line;
  }
  input.has_score_template = input.pooling && !config.chat_template.empty();
  ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::Load(config.tokenizer));
  input.model = config.model;
  if (!input.pooling) {
    ASSIGN_OR_RETURN(input.images, ReadImageInputs(config.model, config.media, *tokenizer));
  }
  ASSIGN_OR_RETURN(const TemplateSources sources, LoadTemplates(config, *tokenizer));
  ASSIGN_OR_RETURN(std::optional<ChatTemplate> chat_template,
                   CompileTemplate(config, sources.chat));
  ASSIGN_OR_RETURN(std::optional<ChatTemplate> tool_template,
                   CompileTemplate(config, sources.with_tools));
  if (!chat_template && !input.pooling)
    LOG_WARNING << "the model has no chat template: chat requests get 400";
  const std::string source = sources.with_tools + sources.chat;
  if (NamesResponseTemplate(config.tool_call_parser, config.reasoning_parser)) {
    ASSIGN_OR_RETURN(input.parsers.response_template, LoadResponseTemplate(config));
  }
  ASSIGN_OR_RETURN(input.parsers, ChooseParsers(config.tool_call_parser, config.reasoning_parser,
                                                source, input.parsers, input.defaults.model_type));
  LogParsers(config, input.parsers, source);
  return std::make_unique<InputProcessor>(std::move(input), std::move(tokenizer),
                                          std::move(chat_template), std::move(tool_template));
}

StatusOr<std::string> LoadTokenizerInfo(const FrontendConfig& config,
                                        const InputProcessor& input_processor) {
  if (!config.enable_tokenizer_info_endpoint) return std::string();
  const std::string path = config.tokenizer + "/tokenizer_config.json";
  std::string text;
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    ASSIGN_OR_RETURN(text, ReadFile(path, kMaxFileBytes));
  }
  auto info = TokenizerInfo(text, input_processor.chat_template_source());
  if (!info.ok()) return info.status().WithContext(path);
  return info;
}

}  // namespace tandem
