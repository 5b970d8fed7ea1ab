package sluice;

import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Files of this machine, with the permissions that the process's umask gives them.
 *
 * Hadoop sets the same permissions by a process of `chmod` for each new file, and each file has a second
 * one with its checksum. A micro-batch writes two files, and two more for each state in each partition.
 */
public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new RawFiles());
    }

    public static class RawFiles extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) {
        }
    }
}
