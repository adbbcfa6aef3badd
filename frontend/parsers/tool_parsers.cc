#include "frontend/parsers/tool_parser.h"

#include <iterator>
#include <vector>

#include "common/strings.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

constexpr ForcedCall kNative = ForcedCall::kNative;
constexpr ForcedCall kJson = ForcedCall::kJson;
constexpr ForcedCall kNativeList = ForcedCall::kNativeList;
constexpr const ToolTags* kNoTags = nullptr;
constexpr CallIdForm kRandom = CallIdForm::kRandom;

// name, aliases, parser, forced calls, their tags, ids, markers are special tokens, calls are
// hidden
constexpr ToolParserRow kRows[] = {
    {"apertus", "", &ParseApertus, kJson, kNoTags, kRandom, true},
    {"cohere_command3", "cohere_command4", &ParseCohere, kJson, kNoTags, CallIdForm::kOwn, true,
     true},
    {"deepseek_v3", "", &ParseDeepseekV3, kNative, &kDeepseekV3Tags},
    {"deepseek_v31", "", &ParseDeepseekV31, kNative, &kDeepseekV31Tags},
    {"deepseek_v32", "", &ParseDeepseekV32, kNative, &kDeepseekV32Tags, kRandom, true},
    {"deepseek_v4", "deepseek_v41", &ParseDeepseekV4, kNative, &kDeepseekV4Tags, kRandom, true},
    {"dots", "", &ParseDots, kJson},
    {"ernie45", "", &ParseErnie45, kJson},
    {"functiongemma", "", &ParseFunctionGemma, kJson, kNoTags, kRandom, true},
    {"gemma4", "", &ParseGemma4, kNative, &kGemma4Tags, kRandom, true},
    {"gigachat3", "", &ParseGigachat3, kJson, kNoTags, kRandom, true},
    {"glm45", "glm47 ling3", &ParseGlm45, kNative, &kGlmTags, kRandom, true},
    {"granite", "", &ParseGranite, kJson, kNoTags, kRandom, true},
    {"granite-20b-fc", "", &ParseGranite20bFc, kJson},
    {"granite4", "", &ParseGranite4, kJson, kNoTags, kRandom, true},
    {"hermes", "qwen3_json", &ParseHermes, kNative, &kHermesTags, kRandom, true},
    {"hf", "beam", &ParseResponseTemplate, kJson, kNoTags, kRandom, true},
    {"hunyuan_a13b", "", &ParseHunyuan, kJson, kNoTags, CallIdForm::kCall},
    {"hy_v3", "hy_v4", &ParseHunyuanCalls, kJson, kNoTags, kRandom, true},
    {"inkling", "", &ParseInkling, kJson, kNoTags, kRandom, true, true},
    {"internlm", "", &ParseInternlm, kJson, kNoTags, kRandom, true},
    {"jamba", "", &ParseJamba, kJson, kNoTags, kRandom, true},
    {"k2_horizon", "", &ParseK2Horizon, kJson, kNoTags, kRandom, true},
    {"kimi_k2", "", &ParseKimiK2, kNative, &kKimiTags, CallIdForm::kOwn, true},
    {"kimi_k3", "", &ParseKimiK3, kJson, kNoTags, kRandom, true, true},
    {"lfm2", "", &ParseLfm2, kJson, kNoTags, kRandom, true},
    {"llama3_json", "llama4_json", &ParseLlama3Json, kNative, &kLlamaTags},
    {"llama4_pythonic", "", &ParseLlama4Pythonic, kJson},
    {"longcat", "", &ParseLongcat, kNative, &kLongcatTags, kRandom, true},
    {"mimo", "", &ParseMimo, kJson, kNoTags, kRandom, true},
    {"minicpm5", "", &ParseMinicpm5, kJson, kNoTags, kRandom, true},
    {"minimax_m2", "", &ParseMinimaxM2, kNative, &kMinimaxTags, kRandom, true},
    {"minimax_m3", "", &ParseMinimaxM3, kJson},
    {"mistral", "", &ParseMistral, kNativeList, kNoTags, CallIdForm::kNineLetters, true, true},
    {"muse", "musespark1x", &ParseMuse, kJson, kNoTags, kRandom, true, true},
    {"muse_glimmer", "", &ParseMuseGlimmer, kJson, kNoTags, kRandom, true, true},
    {"olmo3", "", &ParseOlmo3, kJson},
    {"openai", "", &ParseHarmony, kNative, &kHarmonyTags, kRandom, true, true},
    {"phi4_mini_json", "", &ParsePhi4Mini, kJson},
    {"plamo3", "", &ParsePlamo3, kNative, &kPlamo3Tags, kRandom, true},
    {"poolside_v1", "", &ParseGlm45, kJson, kNoTags, kRandom, true},
    {"pythonic", "", &ParsePythonic, kJson},
    {"qwen3_coder", "qwen3_xml step3p5 step5", &ParseQwen3Coder, kNative, &kQwen3CoderTags, kRandom,
     true},
    {"seed_oss", "", &ParseSeedOss, kJson, kNoTags, kRandom, true},
    {"step3", "", &ParseStep3, kJson, kNoTags, kRandom, true},
    {"xlam", "", &ParseXlam, kJson, kNoTags, CallIdForm::kNumbered, true},
};

}  // namespace

std::span<const ToolParserRow> ToolParsers() { return kRows; }

const ToolParserRow* FindToolParser(std::string_view name) {
  if (name.empty()) return nullptr;
  for (const ToolParserRow& row : kRows) {
    if (row.name == name) return &row;
    for (const std::string_view alias : Split(row.aliases, ' ')) {
      if (alias == name) return &row;
    }
  }
  return nullptr;
}

// gpt-oss' parser reads all of a message and knows no other form of a call.
const ToolParserRow* WithoutTags(const ToolParserRow* row) {
  static const std::vector<ToolParserRow> rows = [] {
    std::vector<ToolParserRow> without(std::begin(kRows), std::end(kRows));
    for (ToolParserRow& each : without) {
      if (each.tags != nullptr && each.tags != &kHarmonyTags) each.forced = kJson;
      each.tags = nullptr;
    }
    return without;
  }();
  return &rows[static_cast<size_t>(row - std::begin(kRows))];
}

// The first row whose marker the template has; the more special ones come first.
const ToolParserRow* ToolParserOfTemplate(std::string_view chat_template) {
  struct Sign {
    std::string_view marker;
    std::string_view parser;
    std::string_view other_marker = {};  // which the template has as well
  };
  constexpr Sign kSigns[] = {
      {"<|channel|>", "openai"},
      {"]<]minimax[>[", "minimax_m3"},
      {"<|plamo:begin_tool_requests:plamo|>", "plamo3"},
      {"<ifm|tool_calls>", "k2_horizon"},
      {"<|content_invoke_tool_json|>", "inkling"},
      {"<atem:function_calls>", "muse"},
      {"<|START_ACTION|>", "cohere_command3"},
      {"<|open|>", "kimi_k3", "<|sep|>"},
      {"<｜DSML｜function_calls", "deepseek_v32"},
      {"<｜DSML｜", "deepseek_v4"},
      {"<|tool_calls_section_begin|>", "kimi_k2"},
      {"<｜tool_calls_begin｜>", "step3"},
      {"<｜tool▁calls▁begin｜>", "deepseek_v3", "```json"},
      {"<｜tool▁calls▁begin｜>", "deepseek_v31"},
      {"<minimax:tool_call>", "minimax_m2"},
      {"<seed:tool_call>", "seed_oss"},
      {"<longcat_tool_call>", "longcat"},
      {"<dots_function_call>", "dots"},
      {"<start_function_call>", "functiongemma"},
      {"<|tools_prefix|>", "apertus"},
      {"<|tool_list_start|>", "lfm2"},
      {"<|tool_call_start|>", "lfm2"},
      {"function call<|role_sep|>", "gigachat3"},
      {"<tool_sep", "hy_v3"},
      {"<arg_key:", "hy_v4"},
      {"<tool_calls>", "hy_v4", "<arg_key>"},
      {"<arg_key>", "glm45"},
      {"<function=", "qwen3_coder"},
      {"<function name=", "minicpm5"},
      {"[TOOL_CALLS]", "mistral"},
      {"<|tool_call>", "gemma4"},
      {"<|action_start|>", "internlm"},
      {"<|tool_call|>", "granite"},
      {"functools[", "phi4_mini_json"},
      {"<function_calls>", "olmo3"},
      {"<function_call>", "granite-20b-fc"},
      {"<tool_calls>", "jamba"},
      {"<tool_call>", "hermes"},
      {"<|python_tag|>", "llama3_json"},
      {"Environment: ipython", "llama3_json"},
  };
  const auto has = [&](std::string_view marker) {
    return chat_template.find(marker) != std::string_view::npos;
  };
  for (const Sign& sign : kSigns) {
    if (has(sign.marker) && has(sign.other_marker)) return FindToolParser(sign.parser);
  }
  return nullptr;
}

// gpt-oss writes nothing but harmony; Mistral's calls begin with a token that a template may leave
// out, but models derived from Mistral's may have no calls at all.
const ToolParserRow* ToolParserOfModelType(std::string_view model_type,
                                           std::string_view chat_template) {
  if (model_type == "gpt_oss") return FindToolParser("openai");
  const bool shows_tools = chat_template.find("[AVAILABLE_TOOLS]") != std::string_view::npos;
  return model_type == "mistral" && shows_tools ? FindToolParser("mistral") : nullptr;
}

std::string MakeCallId(CallIdForm form, int index, std::string_view own_id) {
  constexpr int kHexDigits = 16;
  switch (form) {
    case CallIdForm::kOwn:
      if (!own_id.empty()) return std::string(own_id);
      break;
    case CallIdForm::kCall:
      return "call_" + RandomHex(kHexDigits);
    case CallIdForm::kNumbered:
      return "call_" + std::to_string(index) + "_" + RandomHex(kHexDigits);
    case CallIdForm::kNineLetters:
      return RandomHex(9);
    case CallIdForm::kRandom:
      break;
  }
  return "chatcmpl-tool-" + RandomHex(kHexDigits);
}

}  // namespace tandem
