# cpack: tandem_VERSION_ARCH.deb, and its debug symbols as tandem-dbgsym_VERSION_ARCH.ddeb, which is
# a .deb by the name that CPack gives it. A build with the CUDA backend
# makes tandem-cuda in its place: the same programs, which also start where there is no GPU.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tandem)
if(TANDEM_HAS_CUDA)
  set(CPACK_PACKAGE_NAME tandem-cuda)
  set(CPACK_DEBIAN_PACKAGE_PROVIDES "tandem (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS tandem)
  set(CPACK_DEBIAN_PACKAGE_REPLACES tandem)
endif()
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Tandem <root@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM server with the OpenAI API, of vLLM's design")
set(CPACK_PACKAGE_DESCRIPTION "A frontend that speaks the OpenAI API over HTTP, and an engine core that owns the model.
A small model is included. Configuration is /etc/tandem/tandem.env.")
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS passwd)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "systemd, procps")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bash-completion, gdb, prometheus")
set(CPACK_DEBIAN_DEBUGINFO_PACKAGE ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/postinst
    ${CMAKE_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_SOURCE_DIR}/deploy/debian/postrm
    ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles)
# Installed below DESTDIR, so that files see the prefix /usr.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
configure_file(deploy/systemd/tandem.env ${CMAKE_BINARY_DIR}/package/etc/tandem.env COPYONLY)
configure_file(LICENSE ${CMAKE_BINARY_DIR}/package/doc/copyright COPYONLY)
set(CPACK_INSTALLED_DIRECTORIES ${CMAKE_BINARY_DIR}/package/etc /etc/tandem
    ${CMAKE_BINARY_DIR}/package/doc /usr/share/doc/${CPACK_PACKAGE_NAME})
include(CPack)
