# What is installed where: the program, the shipped model, the library with its header, pkg-config file and CMake
# package, man pages and completions; and the Debian package made of it (cpack -G DEB).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS megadecode EXPORT megadecode ARCHIVE)
install(FILES include/megadecode.h TYPE INCLUDE)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(FILES examples/minimal.c DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

# Both find what they need beside themselves, so that the installation can be moved as a whole.
set(MD_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/megadecode)
file(RELATIVE_PATH MD_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/megadecode.pc.in ${PROJECT_BINARY_DIR}/megadecode.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/megadecode.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(EXPORT megadecode NAMESPACE megadecode:: FILE megadecode-targets.cmake DESTINATION ${MD_PACKAGE_DIR})
configure_file(cmake/megadecode-config.cmake.in ${PROJECT_BINARY_DIR}/megadecode-config.cmake COPYONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/megadecode-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/megadecode-config.cmake ${PROJECT_BINARY_DIR}/megadecode-config-version.cmake
        DESTINATION ${MD_PACKAGE_DIR})

if(TARGET megadecode-cli)
  install(TARGETS megadecode-cli RUNTIME)
  install(DIRECTORY models/fairytales DESTINATION ${CMAKE_INSTALL_DATADIR}/megadecode/models)
  if(NOT CMAKE_CROSSCOMPILING) # the program writes them
    set(MD_DOCS ${PROJECT_BINARY_DIR}/share)
    add_custom_command(OUTPUT ${MD_DOCS}/man/man1/megadecode.1 COMMAND megadecode-cli generate-docs ${MD_DOCS}
                       DEPENDS megadecode-cli VERBATIM)
    add_custom_target(docs ALL DEPENDS ${MD_DOCS}/man/man1/megadecode.1)
    install(DIRECTORY ${MD_DOCS}/ DESTINATION ${CMAKE_INSTALL_DATADIR} PATTERN zsh EXCLUDE)
    if(CMAKE_INSTALL_PREFIX STREQUAL "/usr") # where Debian's zsh looks for those of packages
      set(MD_ZSH_DIR zsh/vendor-completions)
    else()
      set(MD_ZSH_DIR zsh/site-functions)
    endif()
    install(FILES ${MD_DOCS}/zsh/site-functions/_megadecode DESTINATION ${CMAKE_INSTALL_DATADIR}/${MD_ZSH_DIR})
  endif()
endif()

add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
                  -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME megadecode)
set(CPACK_PACKAGE_CONTACT "The megadecode authors <megadecode@invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models with the whole decode step in one resident kernel")
set(CPACK_PACKAGE_DESCRIPTION
    "Runs Llama-family models in MLX's quantized format on CPUs and NVIDIA GPUs:\n a program, an HTTP server and a C library.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates) # for pull
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libjansson-dev, libpcre2-dev, libutf8proc-dev, libxxhash-dev, pkg-config")
include(CPack)
