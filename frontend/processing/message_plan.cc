#include "frontend/processing/message_plan.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/shorten.h"

namespace tandem {
namespace {

using Choice = MessageFormat::Choice;

constexpr std::string_view kNone = "none";
constexpr std::string_view kHarmonyTools = "openai";
constexpr std::string_view kHarmonyReasoning = "openai_gptoss";

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

}  // namespace

StatusOr<ParserConfig> ChooseParsers(std::string_view tool_parser,
                                     std::string_view reasoning_parser,
                                     std::string_view chat_template, ParserConfig rest,
                                     std::string_view model_type) {
  ParserConfig config = std::move(rest);
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
  if (!reads_calls && config.reasoning == nullptr && !config.is_harmony) {
    return std::shared_ptr<MessagePlan>();
  }
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
