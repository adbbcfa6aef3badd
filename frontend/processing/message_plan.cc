#include "frontend/processing/message_plan.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/shorten.h"
#include "frontend/openai/parse.h"
#include "frontend/parsers/described_tags.h"
#include "frontend/parsers/response_template.h"

namespace tandem {
namespace {

using Choice = MessageFormat::Choice;

constexpr std::string_view kNone = "none";
constexpr std::string_view kHarmonyTools = "openai";
constexpr std::string_view kHarmonyReasoning = "openai_gptoss";
constexpr std::string_view kResponseTemplate = "hf";

template <class Rows>
std::string Names(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

Status NoAutoChoice() {
  return InvalidArgumentError(
             "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be "
             "set")
      .WithParam("tool_choice");
}

Status NoForcedChoice(const std::string& choice) {
  return InvalidArgumentError("tool_choice=" + choice + " requires --tool-call-parser to be set")
      .WithParam("tool_choice");
}

StatusOr<Choice> ChoiceOf(const ParserConfig& config, const ChatRequest& request) {
  if (request.tools.is_null()) return Choice::kNone;
  const Json choice = request.tool_choice.is_null() ? Json("auto") : *request.tool_choice;
  if (choice == "none") return Choice::kNone;
  const bool has_parser = config.tool_parser != nullptr && config.enable_auto_tool_choice;
  if (choice == "required") {
    return has_parser ? StatusOr<Choice>(Choice::kRequired) : NoForcedChoice("\"required\"");
  }
  if (choice.is_object()) {
    if (has_parser) return Choice::kNamed;
    return NoForcedChoice("function " + Shorten(choice["function"]["name"].dump()));
  }
  if (!has_parser) return NoAutoChoice();
  return Choice::kAuto;
}

bool IsResponseTemplate(const ToolParserRow* row) {
  return row != nullptr && row->name == kResponseTemplate;
}
bool IsResponseTemplate(const ReasoningFormat* format) {
  return format != nullptr && format->name == kResponseTemplate;
}

// The row with the marks of the checkpoint's thinking, for what looks for them in tokens.
std::shared_ptr<const ReasoningFormat> WithMarksOf(
    const std::shared_ptr<const ResponseTemplate>& own, const ReasoningFormat& row) {
  struct Owned {
    std::shared_ptr<const ResponseTemplate> own;
    ReasoningFormat format;
  };
  auto owned = std::make_shared<Owned>(Owned{own, row});
  const auto* const thinking = own->Find(ResponseTemplate::Part::kThinking);
  if (!thinking->open.words.empty()) owned->format.begin = thinking->open.words.front();
  if (!thinking->close.words.empty()) owned->format.end = thinking->close.words.front();
  return {owned, &owned->format};
}

// Both parsers are that of the checkpoint's description, or one is and the other is none.
Status SetResponseTemplate(std::string_view tool_parser, std::string_view reasoning_parser,
                           ParserConfig* config) {
  const auto& own = config->response_template;
  const auto wrong = [](std::string_view flag, std::string_view name, std::string_view why) {
    return InvalidArgumentError(std::string(flag) + " " + std::string(name) + " " +
                                std::string(why));
  };
  const bool by_tools = IsResponseTemplate(FindToolParser(tool_parser));
  const std::string_view flag = by_tools ? "--tool-call-parser" : "--reasoning-parser";
  const std::string_view name = by_tools ? tool_parser : reasoning_parser;
  if (own == nullptr) {
    return wrong(flag, name,
                 "needs a response_template in the model's tokenizer_config.json, which has none; "
                 "name the parser of the model's format, or none");
  }
  for (const auto& [other_flag, other] : {std::pair("--tool-call-parser", tool_parser),
                                          std::pair("--reasoning-parser", reasoning_parser)}) {
    if (other.empty() || other == kNone || NamesResponseTemplate(other, other)) continue;
    return wrong(flag, name,
                 "reads all of a message: " + std::string(other_flag) + " must be " +
                     std::string(name) + ", none or absent, not " + std::string(other));
  }
  const bool has_calls = own->Find(ResponseTemplate::Part::kCalls) != nullptr;
  const bool has_thinking = own->Find(ResponseTemplate::Part::kThinking) != nullptr;
  if (by_tools && !has_calls) {
    return wrong(flag, name, "needs tool_calls among the fields of the response_template");
  }
  if (!reasoning_parser.empty() && reasoning_parser != kNone && !has_thinking) {
    return wrong("--reasoning-parser", reasoning_parser,
                 "needs thinking among the fields of the response_template");
  }
  config->tool_parser =
      tool_parser == kNone || !has_calls ? nullptr : FindToolParser(kResponseTemplate);
  if (config->tool_parser != nullptr && config->enforce_strict_tool_calling) {
    config->described_calls = WithTagsOf(*own, *config->tool_parser);
    if (config->described_calls) config->tool_parser = config->described_calls.get();
  }
  if (reasoning_parser != kNone && has_thinking) {
    config->suffixed_reasoning = WithMarksOf(own, *FindReasoningFormat(kResponseTemplate));
    config->reasoning = config->suffixed_reasoning.get();
  }
  config->reasoning_is_special = true;
  return OkStatus();
}

// A grammar of calls that the request asks for, and the field that does; empty: it asks for none.
struct Guarantee {
  std::string_view what;
  std::string_view param;
};
Guarantee GuaranteeOf(const ChatRequest& request, Choice choice) {
  for (const Json& tool : *request.tools) {
    const Json* const strict = Find(tool["function"], "strict");
    if (strict != nullptr && *strict == true) return {"strict tools", "tools"};
  }
  if (choice == Choice::kRequired) return {"a required call", "tool_choice"};
  if (choice == Choice::kNamed) return {"a call by its name", "tool_choice"};
  if (request.parallel_tool_calls) return {};
  return {"parallel_tool_calls false", "parallel_tool_calls"};
}

// The parser of a checkpoint's own description has a grammar only where that spells out its calls.
Status CheckGuarantees(const ParserConfig& config, const ChatRequest& request, Choice choice) {
  const Guarantee wanted = GuaranteeOf(request, choice);
  if (config.tool_parser->tags == nullptr) {
    if (wanted.what.empty()) return OkStatus();
    return InvalidArgumentError("response_template parsing cannot guarantee " +
                                std::string(wanted.what) +
                                ": the checkpoint's response_template does not spell out its calls")
        .WithParam(std::string(wanted.param));
  }
  if (wanted.what.empty() && config.strict_level == StrictLevel::kAuto) return OkStatus();
  for (const Json& tool : *request.tools) {
    const auto& name = tool["function"]["name"].get_ref<const std::string&>();
    if (CanCall(*config.response_template, *config.tool_parser, name)) continue;
    return InvalidArgumentError("the checkpoint's response_template has no calls of a tool named " +
                                DumpJson(Shorten(name)))
        .WithParam("tools");
  }
  return OkStatus();
}

}  // namespace

bool NamesResponseTemplate(std::string_view tool_parser, std::string_view reasoning_parser) {
  return IsResponseTemplate(FindToolParser(tool_parser)) ||
         IsResponseTemplate(FindReasoningFormat(reasoning_parser));
}

StatusOr<ParserConfig> ChooseParsers(std::string_view tool_parser,
                                     std::string_view reasoning_parser,
                                     std::string_view chat_template, ParserConfig rest,
                                     std::string_view model_type) {
  ParserConfig config = std::move(rest);
  if (NamesResponseTemplate(tool_parser, reasoning_parser)) {
    RETURN_IF_ERROR(SetResponseTemplate(tool_parser, reasoning_parser, &config));
    return config;
  }
  config.response_template = nullptr;
  if (tool_parser.empty()) {
    config.tool_parser = ToolParserOfTemplate(chat_template);
    if (config.tool_parser == nullptr) {
      config.tool_parser = ToolParserOfModelType(model_type, chat_template);
    }
  } else if (tool_parser != kNone) {
    config.tool_parser = FindToolParser(tool_parser);
    if (config.tool_parser == nullptr) {
      return InvalidArgumentError("--tool-call-parser " + std::string(tool_parser) +
                                  " is unknown; known: none, " + Names(ToolParsers()));
    }
  }
  if (config.tool_parser != nullptr && !config.enforce_strict_tool_calling) {
    config.tool_parser = WithoutTags(config.tool_parser);
  }
  const bool harmony_template =
      config.tool_parser != nullptr && config.tool_parser->name == kHarmonyTools;
  if (reasoning_parser.empty()) {
    config.is_harmony = harmony_template;
    if (!harmony_template) config.reasoning = ReasoningFormatOfTemplate(chat_template);
    config.reasoning_is_guessed = config.reasoning != nullptr;
  } else if (reasoning_parser == kHarmonyReasoning) {
    config.is_harmony = true;
  } else if (reasoning_parser != kNone) {
    config.reasoning = FindReasoningFormat(reasoning_parser);
    if (config.reasoning == nullptr) {
      return InvalidArgumentError("--reasoning-parser " + std::string(reasoning_parser) +
                                  " is unknown; known: none, " + std::string(kHarmonyReasoning) +
                                  ", " + Names(ReasoningFormats()));
    }
  }
  if (config.reasoning != nullptr) {
    config.suffixed_reasoning = WithSuffixOf(chat_template, *config.reasoning);
    if (config.suffixed_reasoning) config.reasoning = config.suffixed_reasoning.get();
    config.reasoning_is_special = config.reasoning->parse_whole != nullptr;
  }
  return config;
}

StatusOr<std::shared_ptr<MessagePlan>> PlanMessage(const ParserConfig& config,
                                                   const ChatRequest& request,
                                                   std::string_view prompt,
                                                   const JsonDocument& defaults) {
  if (config.is_harmony && request.reasoning_effort == "none") {
    return InvalidArgumentError(
               "reasoning_effort none is not available: gpt-oss always reasons; use low, medium "
               "or high")
        .WithParam("reasoning_effort");
  }
  ASSIGN_OR_RETURN(const Choice choice, ChoiceOf(config, request));
  const bool reads_calls = choice != Choice::kNone;
  const bool describes_itself = config.response_template != nullptr;
  if (!reads_calls && config.reasoning == nullptr && !config.is_harmony && !describes_itself) {
    return std::shared_ptr<MessagePlan>();
  }
  if (describes_itself && reads_calls) RETURN_IF_ERROR(CheckGuarantees(config, request, choice));
  auto plan = std::make_shared<MessagePlan>();
  if (!request.tools.is_null()) plan->tools = ToolSet(*request.tools);
  plan->include_reasoning = request.include_reasoning;
  plan->logprobs_of_content = request.logprobs_of_content;
  MessageFormat& format = plan->format;
  format.choice = choice;
  if (choice == Choice::kNamed) {
    format.named_tool = (*request.tool_choice)["function"]["name"].get<std::string>();
  }
  format.tools = &plan->tools;
  format.parallel_calls = request.parallel_tool_calls;
  format.is_harmony = config.is_harmony;
  format.reasoning = config.reasoning;
  if (!request.tools.is_null() && config.tool_parser != nullptr) {
    format.tool_parser = config.tool_parser;
    plan->ids = config.tool_parser->ids;
    plan->shows_special_tokens = reads_calls && config.tool_parser->shows_special_tokens;
  }
  plan->shows_special_tokens |= config.is_harmony || config.reasoning_is_special;
  if (describes_itself) {
    format.response_template = config.response_template;
    prompt = config.response_template->MessageIn(prompt);
    format.prompt_part = prompt;
  }
  if (format.reasoning != nullptr) {
    const JsonDocument variables = TemplateVariables(request, defaults);
    format.start = ReasoningStartAfter(*format.reasoning, prompt, *variables);
    format.reasoning_may_be_content = ReasoningMayBeContent(*format.reasoning, *variables);
    const bool may_start_in_reasoning = format.reasoning->start != ReasoningFormat::Start::kContent;
    if (config.reasoning_is_guessed && may_start_in_reasoning &&
        format.start == ReasoningStart::kUnknown) {
      format.start = ReasoningStart::kByText;
    }
  }
  return plan;
}

}  // namespace tandem
