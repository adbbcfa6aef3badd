# tandem_embed(<target> <function> <file>): the file's text becomes `std::string_view function()` in
# namespace tandem, in a source that is written at configure time and again when the file changes.
function(tandem_embed target function file)
  get_filename_component(path ${file} ABSOLUTE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  set(source "#include <string_view>

namespace tandem {

std::string_view ${function}();
std::string_view ${function}() {
  return R\"embedded(${text})embedded\";
}

}  // namespace tandem
")
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${function}.cc)
  set(old)
  if(EXISTS ${output})
    file(READ ${output} old)
  endif()
  if(NOT "${old}" STREQUAL "${source}")
    file(WRITE ${output} "${source}")
  endif()
  target_sources(${target} PRIVATE ${output})
endfunction()
