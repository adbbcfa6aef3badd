# xgrammar's C++ core, which compiles grammars in the program tandem-grammar and nowhere else. Its
# sources come from the pinned archive on PyPI into the build folder. Its own CMake files build a
# Python module, so its library is a target of ours.
set(TANDEM_XGRAMMAR AUTO CACHE STRING
    "Build tandem-grammar, without which there are no structured outputs: ON, OFF, or AUTO (where xgrammar can be had)")
set(TANDEM_XGRAMMAR_ARCHIVE "" CACHE FILEPATH
    "xgrammar-0.2.8.tar.gz, where it is already there; empty: fetch it with pip")

# Replaces what is wrong in a source file of xgrammar; an error where neither form is there.
function(tandem_repair_xgrammar file wrong right)
  file(READ ${file} text)
  string(FIND "${text}" "${right}" repaired)
  if(NOT repaired EQUAL -1)
    return()
  endif()
  string(FIND "${text}" "${wrong}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${file}: what is to be repaired is not there: ${wrong}")
  endif()
  string(REPLACE "${wrong}" "${right}" text "${text}")
  file(WRITE ${file} "${text}")
endfunction()

set(TANDEM_HAS_XGRAMMAR OFF)
if(TANDEM_XGRAMMAR)
  set(dir ${CMAKE_BINARY_DIR}/_deps/xgrammar-0.2.8)
  tandem_unpack_pypi(problem ${dir} PACKAGE xgrammar VERSION 0.2.8 FILE xgrammar-0.2.8.tar.gz
    SHA256 8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
    ARCHIVE ${TANDEM_XGRAMMAR_ARCHIVE} PIP --no-binary xgrammar
    PATTERNS "*/cpp/*" "*/include/*" "*/3rdparty/picojson/*" "*/3rdparty/dlpack/include/*" "*/LICENSE" "*/NOTICE")
  if(NOT problem)
    set(TANDEM_HAS_XGRAMMAR ON)
    # Strings of limited length may hold raw control characters, which is not JSON.
    tandem_repair_xgrammar(${dir}/xgrammar-0.2.8/cpp/json_schema_converter.cc
      "AddCharacterClass({{'\"', '\"'}, {'\\\\', '\\\\'}, {'\\r', '\\r'}, {'\\n', '\\n'}}, true)"
      "AddCharacterClass({{0, 0x1f}, {'\"', '\"'}, {'\\\\', '\\\\'}}, true)")
    # Names of properties may be spelled in ASCII, as Python's json writes them.
    tandem_repair_xgrammar(${dir}/xgrammar-0.2.8/cpp/json_schema_converter.cc
      "return ByteString(picojson::value(key).serialize());"
      "const std::string text = picojson::value(key).serialize();
  std::string ascii;
  char unit[8];
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = static_cast<unsigned char>(text[i]);
    const int size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    unsigned code_point = size == 1 ? lead : lead & (0x7fU >> size);
    for (int k = 1; k < size && i + k < text.size(); ++k) code_point = code_point << 6 | (text[i + k] & 0x3f);
    i += size;
    if (code_point < 0x80) {
      ascii += static_cast<char>(code_point);
      continue;
    }
    if (code_point >= 0x10000) {
      ascii.append(unit, std::snprintf(unit, sizeof unit, \"\\\\u%04x\", 0xd7c0 + (code_point >> 10)));
      code_point = 0xdc00 | (code_point & 0x3ff);
    }
    ascii.append(unit, std::snprintf(unit, sizeof unit, \"\\\\u%04x\", code_point & 0xffff));
  }
  if (ascii == text || !excludes_.empty()) return ByteString(text);
  return Choice({ByteString(text), ByteString(ascii)});")
    # Classes in what follows a rule are compared by the lowest byte of their characters, so that masks
    # allow tokens that the matcher refuses (a hyphen for U+4E2D) and refuse tokens that it accepts.
    tandem_repair_xgrammar(${dir}/xgrammar-0.2.8/cpp/earley_parser.cc
      "if (static_cast<uint8_t>(sub_sequence[i]) <= ch &&\n        ch <= static_cast<uint8_t>(sub_sequence[i + 1])) {"
      "if (sub_sequence[i] <= ch && ch <= sub_sequence[i + 1]) {")
    # Nothing is taken to follow the root rule. A rule that refers to it has more to come: masks refuse
    # tokens that close several levels of {"$ref": "#"} at once.
    set(file ${dir}/xgrammar-0.2.8/cpp/grammar_compiler.cc)
    tandem_repair_xgrammar(${file}
      "add_task_adaptive_token_mask(cur_stack_element, rule_id == root_rule_id);"
      "add_task_adaptive_token_mask(cur_stack_element, rule_id == root_rule_id && !is_root_referred_to);")
    tandem_repair_xgrammar(${file}
      "auto root_rule_id = compiled_grammar_impl->grammar->GetRootRuleId();\n\n  for"
      "auto root_rule_id = compiled_grammar_impl->grammar->GetRootRuleId();
  bool is_root_referred_to = false;
  const CompactFSM& all_rules = compiled_grammar_impl->grammar->complete_fsm;
  for (int state = 0; state < all_rules.NumStates(); ++state) {
    for (const auto& edge : all_rules.GetEdges(state)) {
      is_root_referred_to |= (edge.IsRuleRef() && edge.GetRefRuleId() == root_rule_id) ||
          (edge.IsRepeatRef() &&
           all_rules.GetRepeatEdgeInfo(edge.GetAuxIndex()).RuleId() == root_rule_id);
    }
  }

  for")
  elseif(TANDEM_XGRAMMAR STREQUAL "AUTO")
    message(STATUS "tandem-grammar is left out, there are no structured outputs: ${problem}")
  else()
    message(FATAL_ERROR "TANDEM_XGRAMMAR is ${TANDEM_XGRAMMAR}, but xgrammar could not be had: ${problem}")
  endif()
endif()
message(STATUS "xgrammar: ${TANDEM_HAS_XGRAMMAR}")
if(NOT TANDEM_HAS_XGRAMMAR)
  return()
endif()

set(dir ${dir}/xgrammar-0.2.8)
file(GLOB sources ${dir}/cpp/*.cc ${dir}/cpp/support/*.cc ${dir}/cpp/converter_ext/*.cc)
add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${sources})
target_include_directories(xgrammar SYSTEM PUBLIC ${dir}/include ${dir}/3rdparty/dlpack/include
                           PRIVATE ${dir}/3rdparty/picojson)
target_compile_definitions(xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
target_compile_features(xgrammar PRIVATE cxx_std_17)
# Optimised in every build: a debug build of it takes seconds for a schema.
target_compile_options(xgrammar PRIVATE -w -O2)
target_link_libraries(xgrammar PRIVATE Threads::Threads)
