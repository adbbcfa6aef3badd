# module(<path> SRCS a.cc … DEPS <path or target> … PRIVATE_DEPS … [SUBDIRS cpu …])
#
# One target per folder, named tandem_<path with _>. Each target has an include root of its own that
# holds links to the headers of its own folder only (.h, and .def: lists that headers include), so a
# header of a module that is not linked cannot be included. Includes are written as full paths from
# the project's root.
# SUBDIRS: subfolders whose headers only this module's own sources may include.
function(module path)
  cmake_parse_arguments(M "" "" "SRCS;DEPS;PRIVATE_DEPS;SUBDIRS" ${ARGN})
  string(REPLACE "/" "_" target "tandem_${path}")
  set(root ${CMAKE_BINARY_DIR}/include/${target})
  set(source ${CMAKE_SOURCE_DIR}/${path})

  file(GLOB headers CONFIGURE_DEPENDS ${source}/*.h ${source}/*.def)
  tandem_links(${root}/public/${path} ${headers})
  list(TRANSFORM M_SUBDIRS PREPEND ${source}/ OUTPUT_VARIABLE subfolders)
  tandem_links(${root}/private/${path} ${subfolders})

  tandem_targets(deps ${M_DEPS})
  tandem_targets(private_deps ${M_PRIVATE_DEPS})
  if(M_SRCS)
    list(TRANSFORM M_SRCS PREPEND ${source}/)
    add_library(${target} STATIC ${M_SRCS})
    target_include_directories(${target} PUBLIC ${root}/public PRIVATE ${root}/private)
    target_link_libraries(${target} PUBLIC ${deps} PRIVATE ${private_deps})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${root}/public)
    target_link_libraries(${target} INTERFACE ${deps} ${private_deps})
  endif()
endfunction()

# Turns module paths into target names; names with "::" and plain library targets stay.
function(tandem_targets out)
  set(result)
  foreach(dep ${ARGN})
    if(dep MATCHES "::" OR TARGET ${dep})
      list(APPEND result ${dep})
    else()
      string(REPLACE "/" "_" name ${dep})
      list(APPEND result tandem_${name})
    endif()
  endforeach()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

# Makes folder hold links to these files and nothing else. Links that are right stay as they are, so
# that a compiler, or an editor's, that runs beside configure finds every header.
function(tandem_links folder)
  file(MAKE_DIRECTORY ${folder})
  set(wanted)
  foreach(file ${ARGN})
    get_filename_component(name ${file} NAME)
    list(APPEND wanted ${name})
    set(target)
    if(IS_SYMLINK ${folder}/${name})
      file(READ_SYMLINK ${folder}/${name} target)
    endif()
    if(NOT target STREQUAL file)
      file(CREATE_LINK ${file} ${folder}/${name} SYMBOLIC)
    endif()
  endforeach()
  file(GLOB present RELATIVE ${folder} ${folder}/*)
  list(REMOVE_ITEM present ${wanted})
  list(TRANSFORM present PREPEND ${folder}/)
  if(present)
    file(REMOVE_RECURSE ${present})
  endif()
endfunction()
