#pragma once

// The parsers of all formats, for the table in tool_parsers.cc. What a format looks like stands at
// its parser.

#include "frontend/parsers/tool_parser.h"

namespace tandem {

// tagged_json_parsers.cc
Parse<> ParseHermes(ToolParserInput in);
Parse<> ParseLongcat(ToolParserInput in);
Parse<> ParseGranite4(ToolParserInput in);
Parse<> ParseErnie45(ToolParserInput in);
Parse<> ParseGranite20bFc(ToolParserInput in);
Parse<> ParseGigachat3(ToolParserInput in);
Parse<> ParseInternlm(ToolParserInput in);
Parse<> ParseLlama3Json(ToolParserInput in);
// json_list_parsers.cc
Parse<> ParseGranite(ToolParserInput in);
Parse<> ParsePhi4Mini(ToolParserInput in);
Parse<> ParseJamba(ToolParserInput in);
Parse<> ParseHunyuan(ToolParserInput in);
Parse<> ParseXlam(ToolParserInput in);
Parse<> ParseApertus(ToolParserInput in);
// named_arguments_parsers.cc
Parse<> ParseMistral(ToolParserInput in);
Parse<> ParseDeepseekV3(ToolParserInput in);
Parse<> ParseDeepseekV31(ToolParserInput in);
Parse<> ParseKimiK2(ToolParserInput in);
Parse<> ParsePlamo3(ToolParserInput in);
// xml_parsers.cc
Parse<> ParseQwen3Coder(ToolParserInput in);
Parse<> ParseMimo(ToolParserInput in);
Parse<> ParseSeedOss(ToolParserInput in);
Parse<> ParseGlm45(ToolParserInput in);
Parse<> ParseMinimaxM2(ToolParserInput in);
Parse<> ParseDeepseekV32(ToolParserInput in);
Parse<> ParseDeepseekV4(ToolParserInput in);
Parse<> ParseStep3(ToolParserInput in);
Parse<> ParseMinicpm5(ToolParserInput in);
Parse<> ParseDots(ToolParserInput in);
// hunyuan_parsers.cc
Parse<> ParseHunyuanCalls(ToolParserInput in);

// pythonic_parsers.cc
Parse<> ParsePythonic(ToolParserInput in);
Parse<> ParseLlama4Pythonic(ToolParserInput in);
Parse<> ParseOlmo3(ToolParserInput in);
Parse<> ParseLfm2(ToolParserInput in);
// gemma_parsers.cc
Parse<> ParseGemma4(ToolParserInput in);
Parse<> ParseFunctionGemma(ToolParserInput in);
// k2_horizon_parser.cc, minimax_m3_parser.cc
Parse<> ParseK2Horizon(ToolParserInput in);
Parse<> ParseMinimaxM3(ToolParserInput in);

// Messages with parts for reasoning, content and calls:
// harmony_parser.cc, cohere_parser.cc, inkling_parser.cc, kimi_k3_parser.cc, muse_parser.cc
Parse<> ParseHarmony(ToolParserInput in);
Parse<> ParseCohere(ToolParserInput in);
Parse<> ParseInkling(ToolParserInput in);
Parse<> ParseKimiK3(ToolParserInput in);
Parse<> ParseMuse(ToolParserInput in);
Parse<> ParseMuseGlimmer(ToolParserInput in);
// response_template_parser.cc
Parse<> ParseResponseTemplate(ToolParserInput in);

}  // namespace tandem
