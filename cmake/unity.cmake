# tandem_unity(<target>): where TANDEM_UNITY is on, its sources are compiled several at a time, because most
# of the time goes to templates that each instantiates anew. It is off in presets that people build: there
# a source that lacks an include does not compile. Sources with flags of their own stay by themselves.
function(tandem_unity target)
  if(NOT TANDEM_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  # An unnamed namespace in an included source is in no header.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

# tandem_alone(<source> …): sources of this folder's targets whose unnamed namespaces have names of others.
function(tandem_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
