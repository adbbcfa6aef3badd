# tandem_precompile(<target>): its sources read the library headers that most sources include from a
# precompiled form where TANDEM_PRECOMPILE is on. It is off in presets that people build: there a source
# that lacks an include does not compile. gcc refuses the form where flags differ: sources with flags of
# their own have SKIP_PRECOMPILE_HEADERS, targets DISABLE_PRECOMPILE_HEADERS.
function(tandem_precompile target)
  if(NOT TANDEM_PRECOMPILE)
    return()
  endif()
  # gcc wants equal flags, and code of programs has others than code of libraries.
  get_target_property(type ${target} TYPE)
  set(owner tandem_precompiled_library)
  if(type STREQUAL "EXECUTABLE")
    set(owner tandem_precompiled_program)
  endif()
  if(NOT TARGET ${owner})
    file(WRITE ${CMAKE_BINARY_DIR}/${owner}.cc "int main() { return 0; }\n")
    if(type STREQUAL "EXECUTABLE")
      add_executable(${owner} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${owner}.cc)
    else()
      add_library(${owner} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${owner}.cc)
    endif()
    # What at least a third of the sources include: every source pays for the size of the form.
    target_precompile_headers(${owner} PRIVATE <algorithm> <array> <chrono> <cmath> <cstdint> <cstring>
      <functional> <limits> <map> <memory> <optional> <span> <sstream> <string> <string_view> <utility>
      <variant> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
  # ccache preprocesses with it.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endfunction()
