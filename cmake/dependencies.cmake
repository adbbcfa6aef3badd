# Everything the project takes from outside. Debian packages, except msgpack: Debian's package of it
# pulls in Boost 1.74, which conflicts with the 1.81 we need, so its headers are unpacked from the
# pinned package into the build folder (or found where TANDEM_MSGPACK_INCLUDE points).
find_package(Threads REQUIRED)
find_package(Boost 1.81 CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(cppzmq CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)

# tandem_library(<name> <header> [<library>]) makes <name>::<name> of what has no CMake files of its own.
function(tandem_library name header)
  find_path(${name}_INCLUDE_DIR ${header} REQUIRED)
  add_library(${name}::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name}::${name} INTERFACE ${${name}_INCLUDE_DIR})
  if(ARGN)
    find_library(${name}_LIBRARY ${ARGN} REQUIRED)
    target_link_libraries(${name}::${name} INTERFACE ${${name}_LIBRARY})
  endif()
endfunction()
tandem_library(pcre2 pcre2.h pcre2-8)
tandem_library(utf8proc utf8proc.h utf8proc)
tandem_library(yaml_cpp yaml-cpp/yaml.h yaml-cpp)
tandem_library(uring liburing.h uring)
tandem_library(webp webp/decode.h webp)
tandem_library(webpdemux webp/demux.h webpdemux)
tandem_library(xxhash xxhash.h)  # used inline, nothing is linked
# Its own CMake files want what only its servers need.
tandem_library(prometheus prometheus/counter.h prometheus-cpp-core)

set(TANDEM_MSGPACK_INCLUDE "" CACHE PATH "Folder that holds msgpack.hpp; empty: fetch the pinned package")
set(msgpack_include ${TANDEM_MSGPACK_INCLUDE})
if(NOT msgpack_include)
  set(dir ${CMAKE_BINARY_DIR}/_deps/msgpack)
  set(deb libmsgpack-cxx-dev_4.1.3-1_amd64.deb)
  set(msgpack_include ${dir}/usr/include)
  if(NOT EXISTS ${msgpack_include}/msgpack.hpp)
    file(MAKE_DIRECTORY ${dir})
    if(NOT EXISTS ${dir}/${deb})
      execute_process(COMMAND apt-get -qq download libmsgpack-cxx-dev=4.1.3-1
                      WORKING_DIRECTORY ${dir} COMMAND_ERROR_IS_FATAL ANY)
    endif()
    file(SHA256 ${dir}/${deb} sha256)
    if(NOT sha256 STREQUAL 9adc2f26df4710f396239434f6cce90a718d75a3b38289957bb89b031748d8a1)
      message(FATAL_ERROR "${deb}: unexpected sha256 ${sha256}")
    endif()
    execute_process(COMMAND dpkg-deb -x ${deb} . WORKING_DIRECTORY ${dir} COMMAND_ERROR_IS_FATAL ANY)
  endif()
endif()
add_library(msgpack_headers INTERFACE)
add_library(msgpack::headers ALIAS msgpack_headers)
target_include_directories(msgpack_headers SYSTEM INTERFACE ${msgpack_include})
target_compile_definitions(msgpack_headers INTERFACE MSGPACK_NO_BOOST)

# Asio and Beast are compiled once, in frontend/net and frontend/http; everybody else sees declarations.
add_library(tandem_asio INTERFACE)
add_library(tandem::asio ALIAS tandem_asio)
target_link_libraries(tandem_asio INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(tandem_asio INTERFACE BOOST_ASIO_SEPARATE_COMPILATION
  BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)
